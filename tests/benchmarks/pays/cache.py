"""The KV cache on against off: what recomputing the whole text at every token costs.

Both curves come from one pass each over the same text. With the cache on, every step of one answer
is timed. With it off, a step is a prefill of all tokens so far, so single steps at chosen lengths
are steps of that answer; they are fed the tokens of the cached run, which also says at each of
these places whether both pick the same next one. Time after n tokens is the sum of n steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.catalog.units import significant, time_label
from engine.inference.loading import LoadedModel
from engine.inference.messages import Token
from tests.benchmarks.pays.driver import Driver, greedy, prose
from tests.benchmarks.pays.report import Section, Table, Verdict

GOAL = 5.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CachePlan:
    """``budget``: seconds that the steps without cache may take; if they would take more, only
    every ``stride``-th is run. In the float32 check, tokens are compared at all of the first
    ``checked_whole`` places, then at every ``checked_stride``-th."""

    prompt_tokens: int = 64
    new_tokens: int = 1024
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    dtype: str = "bfloat16"
    budget: float = 240.0
    stride: int = 8
    checked_whole: int = 64
    checked_stride: int = 32


FULL = CachePlan()
QUICK = CachePlan(16, 32, (8, 16, 32), checked_whole=8, checked_stride=8)


@dataclass(frozen=True, slots=True)
class CachedRun:
    """An answer with the cache on: seconds of each step, and the token that it gave."""

    prompt: tuple[int, ...]
    seconds: tuple[float, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UncachedSteps:
    """Steps with the cache off, after ``places[i]`` tokens of the same answer."""

    places: tuple[int, ...]
    seconds: tuple[float, ...]
    token_ids: tuple[int, ...]

    def parted(self, cached: CachedRun) -> tuple[int, ...]:
        """Places where the cached run took another token."""
        pairs = zip(self.places, self.token_ids, strict=True)
        return tuple(place for place, token in pairs if token != cached.token_ids[place])


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds after 1, 2, … tokens with the cache and without it."""

    cached: NDArray[np.float64]
    uncached: NDArray[np.float64]

    @classmethod
    def of(cls, cached: CachedRun, steps: UncachedSteps) -> Curve:
        """Between measured steps without cache, the time of a step is interpolated linearly."""
        places = np.arange(len(cached.seconds))
        uncached = np.interp(places, steps.places, steps.seconds)
        return cls(np.cumsum(cached.seconds), np.cumsum(uncached))

    @property
    def speed_up(self) -> NDArray[np.float64]:
        return self.uncached / self.cached

    def passes(self, goal: float) -> int | None:
        """The number of tokens from which on the speed-up is at least that; None if it never is."""
        below = np.flatnonzero(self.speed_up < goal)
        first = int(below[-1]) + 2 if len(below) else 1
        return first if first <= len(self.cached) else None


def measure(model: LoadedModel, plan: CachePlan, say: Say) -> Section:
    """Run the part. The model must have lanes for ``plan.dtype`` and float32 open."""
    # With the cache off, a step computes the whole text again: the longest has to fit into one.
    driver = Driver(model, max_step_tokens=plan.prompt_tokens + plan.new_tokens)
    say(f"cache: {plan.new_tokens} tokens in {plan.dtype}, cache on")
    cached = _cached(driver, model, plan, plan.dtype)
    places = _places(driver, cached, plan)
    say(f"cache: {len(places)} steps in {plan.dtype}, cache off")
    uncached = _uncached(driver, cached, places, plan.dtype)
    say("cache: the same tokens in float32")
    exact = _cached(driver, model, plan, "float32")
    checked = sorted(
        {*range(plan.checked_whole), *range(0, plan.new_tokens, plan.checked_stride)}
        | {plan.new_tokens - 1}
    )
    exact_steps = _uncached(driver, exact, checked, "float32")
    return section(plan, (cached, uncached), (exact, exact_steps))


def _cached(driver: Driver, model: LoadedModel, plan: CachePlan, dtype: str) -> CachedRun:
    prompt = prose(model, plan.prompt_tokens)
    for _ in driver.run(greedy("warm-up", 4, weights=dtype), prompt):
        pass
    taken = list(driver.run(greedy("cached", plan.new_tokens, weights=dtype), prompt))
    token_ids = tuple(token.id for step in taken for token in step.of(Token))
    return CachedRun(tuple(prompt), tuple(step.seconds for step in taken), token_ids)


def _uncached(
    driver: Driver, cached: CachedRun, places: Sequence[int], dtype: str
) -> UncachedSteps:
    steps = [_uncached_step(driver, cached, place, dtype) for place in places]
    seconds, token_ids = zip(*steps, strict=True)
    return UncachedSteps(tuple(places), seconds, token_ids)


def _uncached_step(driver: Driver, cached: CachedRun, place: int, dtype: str) -> tuple[float, int]:
    known = [*cached.prompt, *cached.token_ids[:place]]
    (step,) = driver.run(greedy("off", 1, weights=dtype, kv_cache="off"), known)
    (token,) = step.of(Token)
    return step.seconds, token.id


def _places(driver: Driver, cached: CachedRun, plan: CachePlan) -> list[int]:
    """All places where that is affordable by three steps and Simpson's rule, else some of them."""
    last = plan.new_tokens - 1
    _uncached_step(driver, cached, 0, plan.dtype)  # opens the lane
    first, middle, end = (
        _uncached_step(driver, cached, place, plan.dtype)[0] for place in (0, last // 2, last)
    )
    expected = plan.new_tokens * (first + 4 * middle + end) / 6
    stride = 1 if expected <= plan.budget else plan.stride
    return sorted({*range(0, plan.new_tokens, stride), last})


def section(
    plan: CachePlan,
    measured: tuple[CachedRun, UncachedSteps],
    exact: tuple[CachedRun, UncachedSteps],
) -> Section:
    """The part's section from a timed pair and a float32 pair of runs."""
    cached, steps = measured
    curve = Curve.of(cached, steps)
    passes = curve.passes(GOAL)
    whole = len(steps.places) == plan.new_tokens
    which = "every step" if whole else f"{len(steps.places)} of its {plan.new_tokens} steps"
    interpolated = "" if whole else "; the time of the others is interpolated between them"
    rows = [_table_row(curve, n) for n in plan.lengths]
    return Section(
        part="cache",
        title="The cache pays",
        how=f"{plan.dtype}, one request, greedy, a prompt of {plan.prompt_tokens} tokens. One "
        f"answer of {plan.new_tokens} tokens with the paged cache, every step timed; with the "
        f"cache off, {which}, on the same text{interpolated}. Times are sums of steps from the "
        "prompt on: all lengths are read off these two curves, and none was run on its own.",
        tables=[Table("", ("output tokens", "cache on", "cache off", "speed-up"), rows)],
        remarks=[_last_step(curve, plan), _parting(plan.dtype, cached, steps)],
        verdicts=[_same_tokens(*exact), _passing(curve, passes)],
        data={
            "dtype": plan.dtype,
            "prompt_tokens": plan.prompt_tokens,
            "speed_up": {str(n): float(curve.speed_up[n - 1]) for n in plan.lengths},
            "passes_goal_at": passes,
            "goal": GOAL,
            "cached_step_seconds": list(cached.seconds),
            "uncached_places": list(steps.places),
            "uncached_step_seconds": list(steps.seconds),
            "parted_at": list(steps.parted(cached)),
            "float32_checked": len(exact[1].places),
            "float32_parted_at": list(exact[1].parted(exact[0])),
        },
    )


def _table_row(curve: Curve, n: int) -> tuple[str, ...]:
    cached, uncached = float(curve.cached[n - 1]), float(curve.uncached[n - 1])
    return (str(n), time_label(cached), time_label(uncached), f"{uncached / cached:.1f}x")


def _last_step(curve: Curve, plan: CachePlan) -> str:
    last = [float(total[-1] - total[-2]) for total in (curve.cached, curve.uncached)]
    return (
        f"The last of the {plan.new_tokens} tokens takes {time_label(last[0])} with the cache and "
        f"{time_label(last[1])} without it: {significant(last[1] / last[0])} times as long."
    )


def _parting(dtype: str, cached: CachedRun, steps: UncachedSteps) -> str:
    parted = steps.parted(cached)
    compared = f"at {len(steps.places)} places"
    if not parted:
        return f"In {dtype}, both take the same token {compared} that were compared."
    return (
        f"In {dtype}, which rounds a prefill's sums differently from a decode's, they part at "
        f"{len(parted)} of {len(steps.places)} places, first after {parted[0]} tokens."
    )


def _same_tokens(cached: CachedRun, steps: UncachedSteps) -> Verdict:
    parted = steps.parted(cached)
    checked = f"{len(steps.places)} of {len(cached.token_ids)} places compared"
    because = f"{checked}, {len(parted)} differ" + (f", first {parted[0]}" if parted else "")
    return Verdict("Cache on and off take the same greedy tokens in float32", not parted, because)


def _passing(curve: Curve, passes: int | None) -> Verdict:
    top = f"{curve.speed_up[-1]:.1f}x after {len(curve.cached)} tokens"
    if passes is None:
        return Verdict(f"The cache makes answers {GOAL:.0f}x as fast", False, f"only {top}")
    because = f"at least that from {passes} output tokens on, and {top}"
    return Verdict(f"The cache makes answers {GOAL:.0f}x as fast", True, because)
