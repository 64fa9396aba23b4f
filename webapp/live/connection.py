"""One websocket: reads messages, runs their requests, and never outlives its client."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import cast

import structlog
from pydantic import ValidationError
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from webapp import json_codec
from webapp.live.engine_port import EnginePort
from webapp.live.generation import Generation
from webapp.live.outbox import Outbox, ReaderStuck, server_stopping
from webapp.live.rate_limit import TokenBucket
from webapp.prediction import StepPredictor
from webapp.schemas.explain import explain_errors
from webapp.schemas.live_events import ErrorEvent, HelloEvent, PongEvent
from webapp.schemas.live_requests import (
    CLIENT_MESSAGES,
    REQUEST_ID,
    AbortRequest,
    ClientMessage,
    GenerateRequest,
    PingRequest,
)
from webapp.settings import Settings

log = structlog.get_logger("webapp.live")

MAX_MESSAGE_BYTES = 64 * 1024
MAX_FLOOD = 100
"""Messages over the rate limit after which a connection is closed."""

CLOSE_POLICY = 1008
CLOSE_FAILED = 1011
CLOSE_TRY_LATER = 1013
CLOSE_IDLE = 4408


class Refused(Exception):
    """A message that is answered with an ``error`` event."""

    def __init__(
        self, code: str, message: str, field: str | None = None, request_id: str | None = None
    ) -> None:
        super().__init__(code)
        self.event = ErrorEvent(code=code, message=message, field=field)
        self.request_id = request_id


class LiveConnection:
    """The state of one client: its outbox, its running requests, its rate."""

    def __init__(
        self,
        websocket: WebSocket,
        engine: EnginePort,
        predictor: StepPredictor,
        settings: Settings,
        hello: Callable[[], HelloEvent],
    ) -> None:
        self._websocket = websocket
        self._engine = engine
        self._predictor = predictor
        self._settings = settings
        self._hello = hello
        self._session_id = uuid.uuid4().hex
        self._outbox = Outbox(
            websocket.send_text, settings.live_outbox_events, settings.live_stuck_s
        )
        self._bucket = TokenBucket(settings.live_messages_per_s)
        self._flood = TokenBucket(settings.live_messages_per_s, MAX_FLOOD)
        self._stopping = False
        self._active_at = 0.0
        # The connection holds its tasks: a task that nobody refers to may be collected.
        self._running: dict[str, tuple[Generation, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Serves the client until it leaves, is closed, or the server stops."""
        await self._websocket.accept()
        writer = asyncio.create_task(self._outbox.run(), name="live writer")
        reader = asyncio.create_task(self._read(), name="live reader")
        try:
            await asyncio.wait((writer, reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel_all([writer, reader, *(task for _, task in self._running.values())])
        await self._close(_failure(writer), _failure(reader), _result(reader))

    async def interrupt(self, grace_s: float) -> None:
        """Ends every running request with an ``error`` event, because the server stops."""
        self._stopping = True
        running = dict(self._running)
        await _cancel_all([task for _, task in running.values()])
        # Nothing follows the last event of a request, even one that is still in the outbox.
        cut_off = [name for name, (generation, _) in running.items() if not generation.ended]
        try:
            async with asyncio.timeout(grace_s):
                for request_id in cut_off:
                    await self._outbox.put(server_stopping(), request_id)
                await self._outbox.drain()
        except TimeoutError:
            log.info("live_interrupt_undelivered", session=self._session_id)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    async def _read(self) -> int | None:
        """Handles messages one by one; the code to close with, None if the client left."""
        await self._outbox.put(self._hello())
        while True:
            message = await self._receive()
            if message is None:
                return CLOSE_IDLE
            if message["type"] == "websocket.disconnect":
                return None
            if not self._bucket.take():
                if not self._flood.take():
                    return CLOSE_POLICY
                await self._outbox.put(_rate_limited(self._settings.live_messages_per_s))
                continue
            try:
                await self._handle(_parse(message))
            except Refused as refused:
                # A refusal never counts as an event of a request that is running.
                known = refused.request_id in self._running
                await self._outbox.put(refused.event, None if known else refused.request_id)

    async def _receive(self) -> Message | None:
        """The next message; None after a while without one and without a running request."""
        clock = asyncio.get_running_loop().time
        self._active_at = clock()
        while True:
            if self._running:
                self._active_at = clock()
            deadline = self._active_at + self._settings.live_idle_s
            if clock() >= deadline:
                return None
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._websocket.receive()
            except TimeoutError:
                continue  # a request may have run until a moment ago

    async def _handle(self, message: ClientMessage) -> None:
        match message:
            case PingRequest():
                await self._outbox.put(PongEvent())
            case AbortRequest():
                await self._abort(message.request_id)
            case GenerateRequest():
                self._start(message)

    async def _abort(self, request_id: str) -> None:
        running = self._running.get(request_id)
        if running is None or running[0].ended:
            raise Refused("unknown_request", "No such request is running here.", "/request_id")
        await running[0].abort()

    def _start(self, message: GenerateRequest) -> None:
        request_id = message.request_id or uuid.uuid4().hex
        if request_id in self._running:
            raise Refused(
                "duplicate_request_id", "A request of this id is still running.", "/request_id"
            )
        if self._stopping:
            raise Refused("server_stopping", "The server is stopping.", request_id=request_id)
        if len(self._running) >= self._settings.live_generations:
            raise Refused(
                "too_many_requests",
                f"At most {self._settings.live_generations} requests run at once on a connection; "
                "wait for one to end or abort it.",
                request_id=request_id,
            )
        # Two clients may choose the same id, so the engine gets one that is unique everywhere.
        request, notices = message.to_engine(uuid.uuid4().hex, self._session_id)
        generation = Generation(
            self._engine, self._predictor, self._outbox, request_id, request, notices
        )
        task = asyncio.create_task(generation.run(), name="live generation")
        self._running[request_id] = (generation, task)
        task.add_done_callback(lambda _: self._forget(request_id))

    def _forget(self, request_id: str) -> None:
        del self._running[request_id]
        self._active_at = asyncio.get_running_loop().time()

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    async def _close(
        self,
        writing: BaseException | None,
        reading: BaseException | None,
        code: int | None,
    ) -> None:
        """Ends the connection, unless the client did; ``code`` is what the reader asked for."""
        if isinstance(writing, ReaderStuck):
            code = CLOSE_TRY_LATER
            log.info("live_reader_stuck", session=self._session_id)
            writing = None
        for failure in (writing, reading):
            if failure is not None and not isinstance(failure, WebSocketDisconnect):
                code = code or CLOSE_FAILED
                log.error("live_connection_failed", exc_info=failure)
        connected = self._websocket.application_state is WebSocketState.CONNECTED
        if code is not None and connected:
            await self._websocket.close(code)


async def _cancel_all(tasks: Sequence[asyncio.Task[None] | asyncio.Task[int | None]]) -> None:
    """Cancels tasks and waits until they have cleaned up."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _failure(task: asyncio.Task[None] | asyncio.Task[int | None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


def _result(task: asyncio.Task[int | None]) -> int | None:
    return None if task.cancelled() or task.exception() is not None else task.result()


def _parse(message: object) -> ClientMessage:
    """One frame as a message of the protocol.

    Raises:
        Refused: naming the rule and the field, never the content.
    """
    frame = cast("dict[str, object]", message)
    text = frame.get("text")
    if not isinstance(text, str):
        raise Refused("binary_message", "Send messages as text frames holding JSON.")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_MESSAGE_BYTES:
        raise Refused("message_too_large", f"Send at most {MAX_MESSAGE_BYTES} bytes a message.")
    try:
        document = json_codec.loads(text)
    except json_codec.JsonRefused as refused:
        raise Refused(refused.code, refused.detail, refused.pointer or None) from None
    if not isinstance(document, dict):
        raise Refused("not_an_object", "Send a JSON object with a type.")
    kind = document.get("type")
    model = CLIENT_MESSAGES.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise Refused("unknown_type", f"Send a type: one of {', '.join(CLIENT_MESSAGES)}.", "/type")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = explain_errors(error.errors(include_input=False, include_url=False))[0]
        raise Refused(
            "invalid_message", first.detail, first.pointer or None, _request_id(document)
        ) from None


def _request_id(document: dict[str, json_codec.Json]) -> str | None:
    """The id of a refused request, if it is one that may be repeated to the client."""
    request_id = document.get("request_id")
    if isinstance(request_id, str) and REQUEST_ID.fullmatch(request_id):
        return request_id
    return None


def _rate_limited(rate: float) -> ErrorEvent:
    return ErrorEvent(
        code="rate_limited", message=f"Send at most {rate:g} messages a second; this one was lost."
    )
