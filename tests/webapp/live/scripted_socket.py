"""A connection without a network: what a client sends is there at once, all of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.websockets import WebSocketState

from webapp.live.connection import LiveConnection
from webapp.live.engine_port import EnginePort
from webapp.live.hub import LiveHub
from webapp.prediction import StepPredictor
from webapp.settings import Settings


class ScriptedSocket:
    """Stands in for starlette's websocket; ``receive`` does not wait while messages are left."""

    application_state = WebSocketState.CONNECTED

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for message in messages:
            self.say(message)
        self.sent: list[dict[str, Any]] = []
        self.closed_with: int | None = None

    def say(self, message: dict[str, Any]) -> None:
        self.incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(message)})

    def leave(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def accept(self) -> None:
        pass

    async def receive(self) -> dict[str, Any]:
        return await self.incoming.get()

    async def send_text(self, text: str) -> None:
        self.sent.append(json.loads(text))

    async def close(self, code: int) -> None:
        self.closed_with = code

    async def until(self, kind: str) -> dict[str, Any]:
        """The first event of that type, within five seconds."""
        async with asyncio.timeout(5):
            while True:
                for event in self.sent:
                    if event["type"] == kind:
                        return event
                await asyncio.sleep(0)


def connect(
    socket: ScriptedSocket, engine: EnginePort, settings: Settings | None = None
) -> LiveConnection:
    """The server's side of that socket."""
    settings = settings or Settings()
    predictor = StepPredictor()
    hub = LiveHub(engine, predictor, settings)
    return LiveConnection(socket, engine, predictor, settings, hub._hello)  # pyright: ignore
