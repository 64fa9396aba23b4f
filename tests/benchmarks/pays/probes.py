"""What probes cost a decode that asks none: nothing, if the fast path has no hooks.

That it has none is an import contract and a test of the architecture. Here it is seen twice. The
Python calls of a decode step are written down, with a desk of probes in the process that has just
answered and without one: they are the same, in the same order. And decode steps of the same lane
are timed in turns, with a desk and without.
"""

from __future__ import annotations

import gc
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

from engine.catalog.units import time_label
from engine.inference.loading import LoadedModel
from engine.inference.probes.desk import ProbeDesk
from tests.benchmarks.pays.driver import Driver, greedy, prose
from tests.benchmarks.pays.report import Section, Table, Verdict

GOAL = 0.01
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ProbesPlan:
    """``pairs`` of turns, one with and one without; the order changes with each pair. A turn
    decodes ``warm_up`` tokens untimed, because answering leaves nothing of the lane in the
    processor's caches, and then ``timed``."""

    pairs: int = 160
    prompt_tokens: int = 64
    warm_up: int = 3
    timed: int = 12
    asked_tokens: int = 16
    dtype: str = "bfloat16"


FULL = ProbesPlan()
QUICK = ProbesPlan(pairs=3, prompt_tokens=8, warm_up=2, timed=6, asked_tokens=4)


@dataclass(frozen=True, slots=True)
class Calls:
    """What one decode step called, function by function."""

    without: tuple[str, ...]
    with_desk: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether a step does the same with a desk as without."""
        return self.without == self.with_desk


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of the median step of each turn; turns of one pair stand at the same place."""

    without: tuple[float, ...]
    with_desk: tuple[float, ...]
    calls: Calls

    @property
    def differences(self) -> list[float]:
        """Of each pair, as a share of the turn without."""
        pairs = zip(self.without, self.with_desk, strict=True)
        return [desk / plain - 1 for plain, desk in pairs]

    @property
    def median(self) -> float:
        """What a desk costs: the median, because a neighbour's work falls into single turns."""
        return statistics.median(self.differences)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true median lies, 19 times in 20: the sign test's interval, which assumes
        nothing about how the differences scatter (order statistics n/2 ± sqrt(n))."""
        ranked = sorted(self.differences)
        low = max(math.floor(len(ranked) / 2 - math.sqrt(len(ranked))), 0)
        return ranked[low], ranked[-1 - low]

    @property
    def spread(self) -> float:
        """What turns without a desk differ by among themselves: standard deviation over mean."""
        return statistics.stdev(self.without) / statistics.fmean(self.without)

    def below(self, goal: float) -> bool | None:
        """Whether the cost is at most that share; None if the noise is too large to say."""
        low, high = self.interval
        if high <= goal:
            return True
        return False if low > goal else None


def measure(model: LoadedModel, plan: ProbesPlan, say: Say) -> Section:
    """Run the part. The model must have a lane for ``plan.dtype`` open."""
    driver = Driver(model)
    asked = prose(model, plan.asked_tokens)
    turns: dict[bool, list[float]] = {False: [], True: []}
    _turn(driver, model, plan)
    calls = _calls_of_both(driver, model, plan, asked)
    for pair in range(plan.pairs):
        say(f"probes: pair {pair + 1} of {plan.pairs}")
        for with_desk in (pair % 2 == 0, pair % 2 == 1):
            desk = _answered(model, asked) if with_desk else None
            turns[with_desk].append(_turn(driver, model, plan))
            del desk
            gc.collect()
    return section(plan, Cost(tuple(turns[False]), tuple(turns[True]), calls))


def _answered(model: LoadedModel, asked: list[int]) -> ProbeDesk:
    desk = ProbeDesk(model.checkpoint)
    desk.answer("attention", {"token_ids": asked, "layer": 0, "head": 0})
    return desk


def _turn(driver: Driver, model: LoadedModel, plan: ProbesPlan) -> float:
    """The median decode step, in seconds."""
    generate = greedy("turn", 1 + plan.warm_up + plan.timed, weights=plan.dtype)
    taken = list(driver.run(generate, prose(model, plan.prompt_tokens)))
    return statistics.median(step.seconds for step in taken[1 + plan.warm_up :])


def _calls_of_both(driver: Driver, model: LoadedModel, plan: ProbesPlan, asked: list[int]) -> Calls:
    without = _calls(driver, model, plan)
    desk = _answered(model, asked)
    with_desk = _calls(driver, model, plan)
    del desk
    return Calls(without, with_desk)


def _calls(driver: Driver, model: LoadedModel, plan: ProbesPlan) -> tuple[str, ...]:
    """Functions that the last decode step of an answer enters, Python's and C's, in their order."""
    entered: list[str] = []

    def heard(frame: FrameType, event: str, called: object) -> None:
        if event == "call":
            entered.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")
        elif event == "c_call":
            entered.append(getattr(called, "__qualname__", repr(type(called))))

    driver.submit(greedy("calls", 4, weights=plan.dtype), prose(model, plan.prompt_tokens))
    for _ in range(3):
        driver.step()
    gc.collect()  # so that no collection falls into the step that is listened to
    sys.setprofile(heard)
    try:
        driver.step()
    finally:
        sys.setprofile(None)
    return tuple(entered)


def section(plan: ProbesPlan, cost: Cost) -> Section:
    """The part's section from the turns."""
    low, high = cost.interval
    rows = [
        _row("no desk of probes", cost.without),
        _row("a desk that has answered", cost.with_desk),
    ]
    return Section(
        part="probes",
        title="Probes cost nothing while nobody asks",
        how=f"{plan.dtype}, batch 1: {plan.timed} decode steps a turn, of which the median counts, "
        f"after {plan.warm_up} that do not; {plan.pairs} pairs of turns on one lane in one "
        "process, with and without a desk of probes that has just answered.",
        tables=[Table("", ("in the process", "median step", "fastest", "slowest turn"), rows)],
        remarks=[
            f"Turns without a desk differ among themselves by {cost.spread:.1%} (standard "
            f"deviation); the median of {plan.pairs} pairs lies between {low:+.2%} and {high:+.2%} "
            "in 19 cases of 20 (sign test).",
            f"A decode step enters {len(cost.calls.without):,} functions, of Python and of C, "
            f"without a desk, and {'the very same' if cost.calls.same else 'other ones'} with one.",
        ],
        verdicts=[_same_work(cost.calls), _verdict(cost)],
        data={
            "dtype": plan.dtype,
            "cost": cost.median,
            "interval": [low, high],
            "goal": GOAL,
            "functions_entered": len(cost.calls.without),
            "same_functions": cost.calls.same,
            "without_seconds": list(cost.without),
            "with_seconds": list(cost.with_desk),
        },
    )


def _row(name: str, turns: Sequence[float]) -> tuple[str, ...]:
    shown = (statistics.median(turns), min(turns), max(turns))
    return (name, *map(time_label, shown))


def _same_work(calls: Calls) -> Verdict:
    return Verdict(
        "With probes off, a decode step does the same work as without probes",
        calls.same,
        f"{len(calls.without):,} and {len(calls.with_desk):,} functions entered",
    )


def _verdict(cost: Cost) -> Verdict:
    holds = cost.below(GOAL)
    low, high = cost.interval
    noise = ": the noise is too large to say" if holds is None else ""
    return Verdict(
        f"With probes off, a decode step takes at most {GOAL:.0%} longer",
        holds,
        f"{cost.median:+.2%}, between {low:+.2%} and {high:+.2%}{noise}",
    )
