"""One batch for many users: what all get in total, what each waits for, and who gets how much.

Users come one after the other, and each asks again as soon as its answer is complete, so that
from the last arrival on everybody is served at once, with prefills of new prompts in between.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.catalog.units import significant, time_label
from engine.inference.calibration import measure_machine
from engine.inference.device import open_device
from engine.inference.loading import LoadedModel
from engine.inference.messages import Step, Token
from engine.scheduling.plan import SequenceShape
from engine.simulator.step_cost import StepCostModel
from tests.benchmarks.pays.crowd import BatchingPlan, Crowd, user_of
from tests.benchmarks.pays.driver import MODES, Taken
from tests.benchmarks.pays.report import Section, Table, Verdict
from tests.benchmarks.roofline import hardware_of

MOST_UNFAIR = 2.0
Say = Callable[[str], None]


FULL = BatchingPlan()
QUICK = BatchingPlan((1, 2, 4), 12, 8, piece_steps=6, pieces=2, calibrations=1)


@dataclass(frozen=True, slots=True)
class Served:
    """The window in which so many users were served. ``rates`` are total tokens/s of its pieces,
    ``tokens`` what each user got in each step (steps x users), ``itl`` all gaps, in seconds."""

    users: int
    seconds: float
    rates: tuple[float, ...]
    tokens: tuple[tuple[int, ...], ...]
    itl: tuple[float, ...]
    roofline_seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second that all users got together."""
        return sum(map(sum, self.tokens)) / self.seconds

    @property
    def roofline_rate(self) -> float:
        """The same, if each of these very steps had taken its roofline time."""
        return self.rate * self.seconds / self.roofline_seconds

    @property
    def mean_itl(self) -> float:
        return statistics.fmean(self.itl)

    @property
    def p95_itl(self) -> float:
        return float(np.percentile(self.itl, 95))

    def most_unfair(self, steps: int) -> float | None:
        """Most tokens of a user over least, in the worst of all spans of so many steps; None if
        somebody got nothing in one."""
        totals = np.cumsum([[0] * self.users, *self.tokens], axis=0)
        spans = totals[steps:] - totals[:-steps]
        least = spans.min(axis=1)
        return None if least.min() == 0 else float((spans.max(axis=1) / least).max())


def measure(model: LoadedModel, plan: BatchingPlan, say: Say) -> Section:
    """Run the part. The model must have a lane for ``plan.dtype`` open."""
    device = open_device(model.device)
    calibrations = [measure_machine(device)]
    windows: list[tuple[int, float, list[Taken], list[float]]] = []
    for users in plan.users:
        say(f"batching: {users} users")
        windows.append(_window(model, plan, users))
    # The machine may have slowed down meanwhile.
    calibrations += [measure_machine(device) for _ in range(plan.calibrations - 1)]
    hardware = hardware_of(calibrations)
    served = [
        _served(*window, _roofline_seconds(model, plan, hardware, window[2])) for window in windows
    ]
    return section(plan, served)


def _window(
    model: LoadedModel, plan: BatchingPlan, users: int
) -> tuple[int, float, list[Taken], list[float]]:
    crowd = Crowd(model, plan, users)
    crowd.arrive()
    taken: list[Taken] = []
    rates: list[float] = []
    started = time.perf_counter()
    for _ in range(plan.pieces):
        piece_started = time.perf_counter()
        piece = [crowd.step() for _ in range(plan.piece_steps)]
        seconds = time.perf_counter() - piece_started
        rates.append(sum(len(step.of(Token)) for step in piece) / seconds)
        taken += piece
    seconds = time.perf_counter() - started
    crowd.leave()
    return users, seconds, taken, rates


def _served(
    users: int, seconds: float, taken: list[Taken], rates: list[float], roofline_seconds: float
) -> Served:
    tokens = [[0] * users for _ in taken]
    for row, step in zip(tokens, taken, strict=True):
        for token in step.of(Token):
            row[user_of(token)] += 1
    gaps = (token.itl_ms for step in taken for token in step.of(Token))
    return Served(
        users=users,
        seconds=seconds,
        rates=tuple(rates),
        tokens=tuple(map(tuple, tokens)),
        itl=tuple(gap / 1e3 for gap in gaps if gap is not None),
        roofline_seconds=roofline_seconds,
    )


def _roofline_seconds(
    model: LoadedModel, plan: BatchingPlan, hardware: HardwareSpec, taken: Sequence[Taken]
) -> float:
    name = MODES[plan.dtype]
    costs = StepCostModel(ModelSpec.dense(**model.architecture), hardware, weights=name, kv=name)
    shapes = ([SequenceShape(*shape) for shape in step.of(Step)[0].shapes] for step in taken)
    return sum(costs.cost(step).time for step in shapes)


def section(plan: BatchingPlan, served: Sequence[Served]) -> Section:
    """The part's section from the windows, fewest users first."""
    span = plan.piece_steps
    return Section(
        part="batching",
        title="Batching pays",
        how=f"{plan.dtype}, policy fair, a session for each user. Users arrive "
        f"{plan.steps_between} steps apart with prompts of {plan.prompt_tokens} tokens of prose, "
        f"get {plan.max_tokens} tokens and ask again at once. Measured over "
        f"{plan.pieces * span} steps from the moment that all are served; in brackets the slowest "
        f"and fastest {span} steps of it. Shares: most tokens of a user over least, in the worst "
        f"{span} steps in a row.",
        tables=[Table("", _COLUMNS, [_row(window, span) for window in served])],
        remarks=[_price(served), _gain(served)],
        verdicts=[_pays(served), _fair(served, span)],
        data={
            "dtype": plan.dtype,
            "window_steps": plan.pieces * span,
            "most_unfair_over_steps": span,
            "users": [_document(window, span) for window in served],
        },
    )


_COLUMNS = (
    "users",
    "total tokens/s",
    "per user",
    "mean ITL",
    "p95 ITL",
    "roofline, tokens/s (predicted)",
    "share of it",
    "shares, max/min",
)


def _row(window: Served, span: int) -> tuple[str, ...]:
    unfair = window.most_unfair(span)
    slowest, fastest = significant(min(window.rates)), significant(max(window.rates))
    return (
        str(window.users),
        f"{significant(window.rate)} ({slowest} – {fastest})",
        significant(window.rate / window.users),
        time_label(window.mean_itl),
        time_label(window.p95_itl),
        significant(window.roofline_rate),
        f"{window.rate / window.roofline_rate:.0%}",
        "∞" if unfair is None else f"{unfair:.2f}",
    )


def _document(window: Served, span: int) -> dict[str, object]:
    return {
        "users": window.users,
        "tokens_per_second": window.rate,
        "tokens_per_second_of_pieces": list(window.rates),
        "mean_itl_seconds": window.mean_itl,
        "p95_itl_seconds": window.p95_itl,
        "roofline_tokens_per_second": window.roofline_rate,
        "most_unfair": window.most_unfair(span),
        "tokens_of_users": [sum(column) for column in zip(*window.tokens, strict=True)],
    }


def _pays(served: Sequence[Served]) -> Verdict:
    one, most = served[0], served[-1]
    best = max(served, key=lambda window: window.rate)
    return Verdict(
        f"{most.users} users together get more tokens/s than {one.users}",
        most.rate > one.rate,
        f"{significant(most.rate)} against {significant(one.rate)}: {most.rate / one.rate:.1f}x; "
        f"most at {best.users} users, {significant(best.rate)}",
    )


def _fair(served: Sequence[Served], span: int) -> Verdict:
    claim = f"No user gets more than {MOST_UNFAIR:.0f}x the tokens of another"
    ratios = {window.users: window.most_unfair(span) for window in served}
    starved = [users for users, ratio in ratios.items() if ratio is None]
    if starved:
        return Verdict(claim, False, f"with {starved[0]} users somebody got none in {span} steps")
    worst = max(ratio for ratio in ratios.values() if ratio is not None)
    because = f"{worst:.2f}x at most in any {span} steps, with any number of users"
    return Verdict(claim, worst <= MOST_UNFAIR, because)


def _price(served: Sequence[Served]) -> str:
    one, most = served[0], served[-1]
    return (
        f"The price is each user's: mean ITL goes from {time_label(one.mean_itl)} with "
        f"{one.users} to {time_label(most.mean_itl)} with {most.users}."
    )


def _gain(served: Sequence[Served]) -> str:
    for fewer, more in pairwise(served):
        if more.rate < 1.1 * fewer.rate:
            return (
                f"From {fewer.users} to {more.users} users the total changes by "
                f"{more.rate / fewer.rate - 1:+.0%}: the first doubling that brings less than a "
                "tenth."
            )
    return "Every doubling brought a tenth or more."
