"""What the web process needs from the engine, whoever provides it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

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

READY = "ready"


class EnginePort(Protocol):
    """The engine client of ``engine.inference.supervisor``, or a fake of it in tests.

    ``state`` is ``starting``, ``ready``, ``restarting`` or ``stopped``; ``reason`` says in a
    sentence why it is not ready; ``info`` is what the worker told when it was last ready.
    """

    @property
    def state(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def info(self) -> EngineInfo | None: ...

    @property
    def restarts(self) -> int: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def generate(self, request: Generate) -> AsyncGenerator[Message]:
        """Messages about one request, the last of them ``Done`` or ``Failed``.

        Closing the iterator early aborts the request. The request is handed over before the
        iterator waits for the first time, so an ``abort`` after that comes behind it.
        """
        ...

    async def abort(self, request_id: str) -> None: ...

    async def ask(self, request: Configure | Probe) -> Configured | Probed | Failed:
        """The one answer to a question that is not about generating."""
        ...
