"""One request whose events a handler reads one by one, without a websocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from engine.inference.messages import Generate
from webapp.live.engine_port import EnginePort
from webapp.live.generation import Generation
from webapp.live.outbox import ends_request, server_stopping
from webapp.prediction import StepPredictor
from webapp.schemas.live_events import ServerEvent


class Exchange:
    """Runs one request as the websocket does; its steps, which only describe, are left out.

    What waits for the reader is bounded by the request's own tokens.
    """

    def __init__(
        self,
        engine: EnginePort,
        predictor: StepPredictor,
        request: Generate,
        notices: list[str],
    ) -> None:
        self._events: asyncio.Queue[ServerEvent] = asyncio.Queue()
        self._generation = Generation(engine, predictor, self, request.request_id, request, notices)
        self._task: asyncio.Task[None] | None = None

    async def events(self) -> AsyncGenerator[ServerEvent]:
        """Every event but the steps, the last of them ``done`` without samples left, or ``error``.

        Closing the iterator early aborts the request.
        """
        self._task = task = asyncio.create_task(self._generation.run(), name="exchange")
        try:
            while True:
                event = await self._events.get()
                yield event
                if ends_request(event):
                    return
        finally:
            task.cancel()
            await asyncio.wait([task])

    def interrupt(self) -> None:
        """Ends the request with an ``error`` event, because the server stops."""
        if self._task is not None and not self._generation.ended:
            self._task.cancel()
            self._events.put_nowait(server_stopping())

    async def put(self, event: ServerEvent, request_id: str | None = None) -> None:
        """For the generation: the reader gets this event."""
        self._events.put_nowait(event)

    def offer(self, event: ServerEvent, request_id: str | None = None) -> bool:
        """For the generation: nobody here reads steps, so none is lost."""
        return True
