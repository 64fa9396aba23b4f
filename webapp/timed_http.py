"""What the access log and the metrics share: every answer over HTTP, with its status and time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class TimedHttp(ABC):
    """Times each request over HTTP, also one whose handler fails."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    @abstractmethod
    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Called once a request is over; ``status`` is 0 where no answer was begun."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def watching_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watching_send)
        finally:
            self.answered(scope, status, time.perf_counter() - began)
