"""Runs checks: one at a time, so that they neither measure each other nor hold up other prompts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from engine.errors import EngineError, QueueFull
from webapp.claims.bench import Bench
from webapp.claims.catalogue import CHECKS
from webapp.claims.claim import Claim, Effort, Finding

MAX_WAITING = 16
TIME_LIMIT_S = 240.0


@dataclass(slots=True)
class ClaimRunner:
    """Checks of the engine run one after the other; computed ones at once."""

    limit_s: float = TIME_LIMIT_S
    max_waiting: int = MAX_WAITING
    _turn: asyncio.Lock | None = None
    _waiting: int = 0

    async def find(self, claim: Claim, bench: Bench) -> Finding:
        """What the check of ``claim`` finds now.

        Raises:
            QueueFull: too many checks wait already.
            EngineError: the engine refused, is not there, or took too long.
        """
        check = CHECKS[claim.id]
        if claim.effort is Effort.INSTANT:
            return await check(bench)
        if self._waiting >= self.max_waiting:
            raise QueueFull("too many checks wait for the engine; try again in a minute")
        self._turn = self._turn or asyncio.Lock()
        self._waiting += 1
        try:
            async with self._turn:
                async with asyncio.timeout(self.limit_s):
                    return await check(bench)
        except TimeoutError:
            raise EngineError(
                f"the check took more than {self.limit_s:g} s and was ended"
            ) from None
        finally:
            self._waiting -= 1
