"""Measured times beside predicted ones: how far off, and whether within the interval."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from engine.simulator.machine.ideal import LaneRoofline
from engine.simulator.machine.typical import LaneTypical
from engine.simulator.validation import this_machine
from tests.benchmarks.machine.grid import Cell
from tests.benchmarks.machine.timing import TimedSteps


@dataclass(frozen=True, slots=True)
class Score:
    """One cell of one lane. Seconds: of a prompt up to its first token, or of a decode step.

    ``measured`` is the median of the runs, ``fastest`` and ``slowest`` their ends.
    """

    lane: str
    kind: str
    batch: int
    tokens: int
    runs: int
    measured: float
    fastest: float
    slowest: float
    ideal: float
    typical: float
    p10: float
    p90: float

    @property
    def error(self) -> float:
        """Typical over measured, less one."""
        return self.typical / self.measured - 1

    @property
    def roof_share(self) -> float:
        """Ideal over measured: how much of the roofline was reached."""
        return self.ideal / self.measured

    @property
    def held(self) -> bool:
        """Whether the median was within p10 and p90."""
        return self.p10 <= self.measured <= self.p90


def score(
    lane: str,
    cell: Cell,
    runs: Sequence[TimedSteps],
    ideal: LaneRoofline,
    typical: LaneTypical,
) -> Score:
    """A cell's runs beside the prices of the very steps that ran."""
    first = runs[0]
    best = [ideal.cost(shapes).time for shapes in first.shapes]
    usual = [typical.cost(shapes) for shapes in first.shapes]
    # The loop's own work is in no step's duration.
    times = [cost.time - cost.parts.scheduler for cost in usual]
    share = sum(times) / sum(cost.time for cost in usual)
    count = len(times) if cell.kind == "decode" else 1
    if cell.kind == "decode":
        seconds = [each for run in runs for each in run.seconds]
    else:
        seconds = [sum(run.seconds) for run in runs]
    return Score(
        lane=lane,
        kind=cell.kind,
        batch=cell.batch,
        tokens=cell.tokens,
        runs=len(seconds),
        measured=statistics.median(seconds),
        fastest=min(seconds),
        slowest=max(seconds),
        ideal=sum(best) / count,
        typical=sum(times) / count,
        p10=sum(cost.p10 for cost in usual) * share / count,
        p90=sum(cost.p90 for cost in usual) * share / count,
    )


def median_error(scores: Iterable[Score]) -> float:
    """The median of the absolute errors."""
    return statistics.median(abs(item.error) for item in scores)


def drift_free_error(scores: Sequence[Score]) -> float:
    """The median error that is left when all predictions are divided by one common factor."""
    return this_machine.drift_free_error([item.typical / item.measured for item in scores])


def as_document(item: Score) -> dict[str, object]:
    """As JSON values, with what follows from them."""
    return {**asdict(item), "error": item.error, "roof_share": item.roof_share, "held": item.held}
