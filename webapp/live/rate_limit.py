"""A token bucket: so many messages a second, with a burst."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Holds up to ``burst`` permits (one second's worth by default) and refills continuously."""

    def __init__(
        self,
        rate_per_s: float,
        burst: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate_per_s
        self._capacity = max(1.0, rate_per_s if burst is None else burst)
        self._clock = clock
        self._permits = self._capacity
        self._updated = clock()

    def take(self) -> bool:
        """Takes one permit if there is one."""
        now = self._clock()
        self._permits = min(self._capacity, self._permits + (now - self._updated) * self._rate)
        self._updated = now
        if self._permits < 1.0:
            return False
        self._permits -= 1.0
        return True
