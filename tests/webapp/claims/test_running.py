"""Checks take their turn, end in time, and are not run for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from engine.errors import EngineUnavailable, QueueFull
from webapp.claims.bench import Bench
from webapp.claims.catalogue import CHECKS, CLAIMS
from webapp.claims.claim import Effort, Finding, Verdict
from webapp.claims.running import COMPUTED_AT_ONCE, ClaimRunner
from webapp.waiting import AskerGone

NO_BENCH = cast("Bench", None)
FOUND = Finding(Verdict.RIGHT, "so it is", ())
Slow = Callable[[], int]


async def stays() -> bool:
    return False


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Checks of claim C01 that take a moment; how many ran at the same time at most."""
    running = seen = 0

    async def check(_: Bench) -> Finding:
        nonlocal running, seen
        running += 1
        seen = max(seen, running)
        await asyncio.sleep(0.01)
        running -= 1
        return FOUND

    monkeypatch.setitem(CHECKS, "C01", check)
    return lambda: seen


@pytest.mark.parametrize(("effort", "at_once"), [("engine", 1), ("instant", COMPUTED_AT_ONCE)])
def test_few_at_once(most: Slow, effort: str, at_once: int) -> None:
    claim = replace(CLAIMS[0], effort=Effort(effort))

    async def all_of_them() -> list[Finding]:
        runner = ClaimRunner()
        return await asyncio.gather(*(runner.find(claim, NO_BENCH, stays) for _ in range(6)))

    assert asyncio.run(all_of_them()) == [FOUND] * 6
    assert most() == at_once


def test_too_many_are_refused(most: Slow) -> None:
    claim = replace(CLAIMS[0], effort=Effort.ENGINE)

    async def all_of_them() -> list[Finding | BaseException]:
        runner = ClaimRunner(max_waiting=2)
        asked = (runner.find(claim, NO_BENCH, stays) for _ in range(3))
        return await asyncio.gather(*asked, return_exceptions=True)

    *found, refused = asyncio.run(all_of_them())
    assert found == [FOUND] * 2
    assert isinstance(refused, QueueFull)


def test_nothing_runs_for_someone_who_has_gone(most: Slow) -> None:
    async def gone() -> bool:
        return True

    with pytest.raises(AskerGone):
        asyncio.run(ClaimRunner().find(CLAIMS[0], NO_BENCH, gone))
    assert most() == 0


def test_a_check_that_takes_too_long_is_ended(most: Slow) -> None:
    with pytest.raises(EngineUnavailable, match="too long"):
        asyncio.run(ClaimRunner(limit_s=0.001).find(CLAIMS[0], NO_BENCH, stays))
    assert most() == 1
