"""The engine, with everything it says of requests counted on its way to whoever asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from engine.inference.messages import (
    Configure,
    Configured,
    EngineInfo,
    Failed,
    Generate,
    Message,
    Probe,
    Probed,
)
from webapp.live.engine_port import EnginePort
from webapp.metrics.collecting import Metrics


class ObservedEngine:
    """Satisfies ``EnginePort`` by another engine that does."""

    def __init__(self, engine: EnginePort, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._number = 0

    @property
    def state(self) -> str:
        return self._engine.state

    @property
    def reason(self) -> str:
        return self._engine.reason

    @property
    def info(self) -> EngineInfo | None:
        return self._engine.info

    @property
    def restarts(self) -> int:
        return self._engine.restarts

    async def start(self) -> None:
        await self._engine.start()

    async def stop(self) -> None:
        await self._engine.stop()

    async def generate(self, request: Generate) -> AsyncGenerator[Message]:
        """As the engine's own. Ids are counted here anew: one in use is refused by the engine."""
        self._number += 1
        life = str(self._number)
        self._metrics.began(life, request.n)
        try:
            async with aclosing(self._engine.generate(request)) as messages:
                async for message in messages:
                    self._metrics.observe(life, message)
                    yield message
        finally:
            self._metrics.left(life)

    async def abort(self, request_id: str) -> None:
        await self._engine.abort(request_id)

    async def ask(self, request: Configure | Probe) -> Configured | Probed | Failed:
        return await self._engine.ask(request)
