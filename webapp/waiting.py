"""A few at a time, a bounded line of those who wait, and a refusal for everybody else."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from anyio import CapacityLimiter

from engine.errors import EngineError

Gone = Callable[[], Awaitable[bool]]
"""Whether the asker has gone; ``request.is_disconnected`` once the body was read."""


class AskerGone(EngineError):
    """The asker left before it was their turn; nobody reads this answer."""

    code = "asker_gone"


async def _stays() -> bool:
    return False


class Line:
    """``at_once`` are served, who came first first; ``most`` may be there, served or waiting."""

    def __init__(self, at_once: int, most: int, full: Callable[[], EngineError]) -> None:
        """``full`` makes the ``QueueFull`` of those for whom there is no room."""
        self._places = CapacityLimiter(at_once)
        self._most = most
        self._full = full
        self._length = 0

    @asynccontextmanager
    async def place(self, gone: Gone = _stays) -> AsyncGenerator[None]:
        """A place among those that are served; waits for one.

        Raises:
            QueueFull: too many are there already.
            AskerGone: whoever waited has ``gone`` when it is their turn.
        """
        if self._length >= self._most:
            raise self._full()
        self._length += 1
        try:
            async with self._places:
                if await gone():
                    raise AskerGone("nobody waits for this answer any more")
                yield
        finally:
            self._length -= 1
