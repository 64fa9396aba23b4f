"""The bounded outbox of one connection: a slow reader slows its own stream, and nothing else.

Every event waits for its place; step events, which only describe, are dropped instead when the
outbox fills up. A reader that takes nothing for ``stuck_s`` seconds makes the writer raise
``ReaderStuck``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from webapp import json_codec
from webapp.schemas.live_events import DoneEvent, ErrorEvent, ServerEvent


class ReaderStuck(Exception):
    """The client has not taken any data for too long."""


class Sink(Protocol):
    """Where the events of a request go."""

    async def put(self, event: ServerEvent, request_id: str | None = None) -> None:
        """Takes an event, however long that takes."""
        ...

    def offer(self, event: ServerEvent, request_id: str | None = None) -> bool:
        """Takes an event that may be dropped; False if it was."""
        ...


class Outbox:
    """Events on their way to one client, in order.

    ``seq`` counts the events of each request (and of the connection itself, under None) from 0.
    The writer gives it, so what is sent has no gaps, whatever was dropped or cancelled before.
    """

    def __init__(
        self, send: Callable[[str], Awaitable[None]], max_events: int, stuck_s: float
    ) -> None:
        self._send = send
        self._queue: asyncio.Queue[tuple[ServerEvent, str | None]] = asyncio.Queue(max_events)
        self._stuck_s = stuck_s
        self._next_seq: dict[str | None, int] = {}

    async def put(self, event: ServerEvent, request_id: str | None = None) -> None:
        """Queues an event; waits while the outbox is full."""
        await self._queue.put((event, request_id))

    def offer(self, event: ServerEvent, request_id: str | None = None) -> bool:
        """Queues an event while the outbox is less than half full, else drops it.

        The other half is for events that may not be lost. Returns whether it was queued.
        """
        if self._queue.qsize() >= self._queue.maxsize // 2:
            return False
        self._queue.put_nowait((event, request_id))
        return True

    async def drain(self) -> None:
        """Waits until everything that was queued is sent."""
        await self._queue.join()

    async def run(self) -> None:
        """Sends what is queued, for as long as the connection lives.

        Raises:
            ReaderStuck: one message could not be handed over in time.
        """
        while True:
            event, request_id = await self._queue.get()
            text = self._render(event, request_id)
            try:
                async with asyncio.timeout(self._stuck_s):
                    await self._send(text)
            except TimeoutError:
                raise ReaderStuck from None
            self._queue.task_done()

    def _render(self, event: ServerEvent, request_id: str | None) -> str:
        seq = self._next_seq.get(request_id, 0)
        if request_id is not None and ends_request(event):
            self._next_seq.pop(request_id, None)  # the last event of this request
        else:
            self._next_seq[request_id] = seq + 1
        document = event.model_dump()
        kind = document.pop("type")
        return json_codec.dumps({"type": kind, "request_id": request_id, "seq": seq, **document})


def ends_request(event: ServerEvent) -> bool:
    """Whether this is the last event of its request: the end of its last sample, or an error."""
    if isinstance(event, DoneEvent):
        return event.samples_left == 0
    return isinstance(event, ErrorEvent)


def server_stopping() -> ErrorEvent:
    """The last event of a request that still runs when the server stops."""
    return ErrorEvent(
        code="server_stopping", message="The server is stopping; run the prompt again later."
    )
