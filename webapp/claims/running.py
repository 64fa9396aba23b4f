"""Runs checks: those of the engine one at a time, so that they neither measure each other nor hold
up other prompts; computed ones two at a time, because a page asks for all of them at once."""

from __future__ import annotations

import asyncio

from engine.errors import EngineUnavailable, QueueFull
from webapp.claims.bench import Bench
from webapp.claims.catalogue import CHECKS
from webapp.claims.claim import Claim, Effort, Finding
from webapp.i18n import N_
from webapp.waiting import Gone, Line

MAX_WAITING = 16
MAX_COMPUTING = 128
"""A classroom opens the page of all claims at once."""
COMPUTED_AT_ONCE = 2
TIME_LIMIT_S = 240.0


def _full() -> QueueFull:
    return QueueFull(N_("too many checks wait; try again in a minute"))


class ClaimRunner:
    """Checks of either effort, each with a line of its own."""

    def __init__(self, limit_s: float = TIME_LIMIT_S, max_waiting: int = MAX_WAITING) -> None:
        self._limit_s = limit_s
        self._lines = {
            Effort.ENGINE: Line(1, max_waiting, _full),
            Effort.INSTANT: Line(COMPUTED_AT_ONCE, MAX_COMPUTING, _full),
        }

    async def find(self, claim: Claim, bench: Bench, gone: Gone) -> Finding:
        """What the check of ``claim`` finds now; nothing is run for someone who is ``gone`` when
        it is their turn.

        Raises:
            QueueFull: too many checks wait already.
            EngineUnavailable: the engine is not there, or the check took too long.
            EngineError: the engine refused, or the asker has gone.
        """
        async with self._lines[claim.effort].place(gone):
            try:
                async with asyncio.timeout(self._limit_s):
                    return await CHECKS[claim.id](bench)
            except TimeoutError:
                raise EngineUnavailable(N_("the check took too long and was ended")) from None
