"""All who generate in this process: admits them, knows them, ends them at shutdown."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Generator
from contextlib import contextmanager

import structlog
from starlette.datastructures import Headers
from starlette.websockets import WebSocket, WebSocketDisconnect

from webapp.admission import deny_websocket
from webapp.engine_document import engine_document
from webapp.live.addresses import AddressLimit, client_network
from webapp.live.connection import MAX_MESSAGE_BYTES, LiveConnection
from webapp.live.engine_port import EnginePort
from webapp.live.exchange import Exchange
from webapp.origins import OriginPolicy
from webapp.prediction import StepPredictor
from webapp.schemas.live_events import HelloEvent, Limits
from webapp.schemas.live_requests import MAX_PROMPT_CHARS, MAX_TOKENS, GenerateRequest
from webapp.settings import Settings

log = structlog.get_logger("webapp.live")

INTERRUPT_GRACE_S = 1.0


class NoRoom(Exception):
    """One more is not let in: the status that says so, and a sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class LiveHub:
    """Counts and bounds the open websockets, and the exchanges over HTTP with them."""

    def __init__(self, engine: EnginePort, predictor: StepPredictor, settings: Settings) -> None:
        self._engine = engine
        self._predictor = predictor
        self._settings = settings
        self._origins = OriginPolicy(settings)
        self._connections: set[LiveConnection] = set()
        self._exchanges: set[Exchange] = set()
        self._addresses = AddressLimit(settings.live_connections_per_address)
        self.stopping = False

    def __len__(self) -> int:
        return len(self._connections) + len(self._exchanges)

    async def serve(self, websocket: WebSocket) -> None:
        """Runs one connection from its handshake to its end.

        A page of another site gets 403, a connection beyond the limit of its client's address 429
        and one beyond that of all 503; each before accepting.
        """
        headers = Headers(scope=websocket.scope)
        if not self._origins.allows(headers, websocket.scope["scheme"]):
            await self._deny(websocket, 403, "Pages of other sites may not connect.")
            return
        try:
            with self._place(websocket.client.host if websocket.client else None):
                await self._run(websocket)
        except NoRoom as refused:
            await self._deny(websocket, refused.status, refused.detail)

    @contextmanager
    def exchange(self, host: str | None, message: GenerateRequest) -> Generator[Exchange]:
        """One request of a client that is no websocket; it counts as a connection of ``host``.

        Raises:
            NoRoom: 429 beyond the limit of its address, 503 beyond that of all.
        """
        with self._place(host) as network:
            request, notices = message.to_engine(uuid.uuid4().hex, f"http {network}")
            exchange = Exchange(self._engine, self._predictor, request, notices)
            self._exchanges.add(exchange)
            try:
                yield exchange
            finally:
                self._exchanges.discard(exchange)

    @contextmanager
    def _place(self, host: str | None) -> Generator[str]:
        """A place among all for one of this address's network, which it gives."""
        if self.stopping or len(self) >= self._settings.live_connections:
            raise NoRoom(503, "The server is busy; try again later.")
        network = client_network(host)
        if not self._addresses.take(network):
            raise NoRoom(429, "Too many connections from this address.")
        try:
            yield network
        finally:
            self._addresses.give_back(network)

    async def _run(self, websocket: WebSocket) -> None:
        connection = LiveConnection(
            websocket, self._engine, self._predictor, self._settings, self._hello
        )
        self._connections.add(connection)
        try:
            await connection.run()
        except WebSocketDisconnect:
            log.info("live_left_early")
        finally:
            self._connections.discard(connection)

    async def interrupt(self) -> None:
        """Tells every running request that the server stops; called before sockets are closed."""
        self.stopping = True
        for exchange in list(self._exchanges):
            exchange.interrupt()
        await asyncio.gather(
            *(connection.interrupt(INTERRUPT_GRACE_S) for connection in list(self._connections))
        )

    def _hello(self) -> HelloEvent:
        return HelloEvent(
            engine=engine_document(self._engine, self._predictor),
            limits=Limits(
                max_message_bytes=MAX_MESSAGE_BYTES,
                max_prompt_chars=MAX_PROMPT_CHARS,
                max_tokens=MAX_TOKENS,
                messages_per_s=self._settings.live_messages_per_s,
                generations_at_once=self._settings.live_generations,
            ),
        )

    async def _deny(self, websocket: WebSocket, status: int, detail: str) -> None:
        log.info("live_refused", status=status)
        await deny_websocket(websocket.scope, websocket.receive, websocket.send, status, detail)
