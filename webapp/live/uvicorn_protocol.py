"""uvicorn's websocket protocol, with an end that a silent peer cannot hold up.

The stock protocol lets ``close`` wait until the peer has read what was sent before, and then keeps
the transport until its buffer is empty. A peer that never reads would so keep a socket and its
buffer for ever; here the close frame is queued at once, and the transport is cut soon after.
"""

from __future__ import annotations

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

LINGER_S = 5.0
"""How long a peer may take to read the rest and to answer the close frame."""


class LiveWebSocketProtocol(WebSocketsSansIOProtocol):
    """Closes within ``LINGER_S``, whatever the peer does."""

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "websocket.close":
            self.writable.set()
        await super().send(message)

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self.loop.call_later(LINGER_S, self.transport.abort)
