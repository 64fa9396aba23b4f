"""uvicorn's websocket protocol, with an end that the peer can neither miss nor hold up.

The stock protocol has two weak ends. ``close`` waits until the peer has read what was sent before,
and the transport is kept until its buffer is empty: a peer that never reads keeps a socket and its
buffer for ever. And after a broken frame the socket is closed over what the peer is still sending,
so that the peer sees a reset instead of the close code.
"""

from __future__ import annotations

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

LINGER_S = 5.0
"""How long a peer may take to read the rest and to answer the close frame."""
DISCARD_S = 1.0
"""How long what follows a broken frame is read and thrown away."""
SHUTDOWN_LINGER_S = 1.5
"""How long a peer may take to read the rest when the server stops."""


class LiveWebSocketProtocol(WebSocketsSansIOProtocol):
    """Closes with a code that arrives, within ``LINGER_S``, whatever the peer does."""

    _broken = False

    async def send(self, message: ASGISendEvent) -> None:
        if self.close_sent and self.handshake_complete:
            # A broken frame or a missed pong ended the connection while the app was sending.
            raise ClientDisconnected
        if message["type"] == "websocket.close":
            self.writable.set()
        await super().send(message)

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(SHUTDOWN_LINGER_S, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._broken:
            super().data_received(data)

    def handle_parser_exception(self) -> None:
        """After a broken frame: tell the app and the peer, then read on for a moment."""
        self._broken = True
        closing = self.conn.close_sent
        if closing is None:
            self.transport.abort()
            return
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": closing.code, "reason": closing.reason}
        )
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(DISCARD_S, self.transport.close)
