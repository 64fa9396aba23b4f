"""The numbers of the report: the same for its page, its text and its JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.simulator.efficiency import device_class, prior_table
from engine.simulator.intervals import Metric, segment
from engine.simulator.validation.kinds import COVERAGE, GOALS, NAMES, Goal, kind_of
from engine.simulator.validation.plans import Plan
from engine.simulator.validation.scoring import Errors, Mask, Scores


@dataclass(frozen=True, slots=True)
class Line:
    """One group of rows: errors at the roofline, of what ships, of values that never saw the
    device, and of the half fit where rows of the group are in its held-out part."""

    name: str
    roofline: Errors
    shipped: Errors
    unseen: Errors
    held_out: Errors | None
    coverage: float


@dataclass(frozen=True, slots=True)
class GoalLine:
    """A goal with the line of its rows."""

    goal: Goal
    line: Line

    @property
    def met(self) -> bool:
        """Judged on rows not calibrated on: every row by values that never saw its device."""
        return self.line.unseen.median <= self.goal.error

    @property
    def met_on_half(self) -> bool:
        """Judged on the held-out half alone."""
        held_out = self.line.held_out
        return held_out is None or held_out.median <= self.goal.error


def line(scores: Scores, name: str, mask: Mask) -> Line | None:
    """The line of the rows of a mask; None without any."""
    roofline = scores.errors(scores.roofline, mask)
    shipped = scores.errors(scores.shipped, mask)
    unseen = scores.errors(scores.unseen, mask)
    if roofline is None or shipped is None or unseen is None:
        return None
    held_out = scores.errors(scores.half, mask & scores.half_held_out)
    return Line(name, roofline, shipped, unseen, held_out, float(np.mean(scores.inside[mask])))


def lines(scores: Scores, key: Callable[[Plan], str], fewest: int = 1) -> list[Line]:
    """A line for each value of a key that has at least ``fewest`` rows."""
    found = [line(scores, name, mask) for name, mask in scores.groups(key).items()]
    return [item for item in found if item is not None and item.unseen.rows >= fewest]


def goal_lines(scores: Scores) -> list[GoalLine]:
    """Every goal with its errors."""
    found: list[GoalLine] = []
    for goal in GOALS:
        kinds = goal.metrics
        mask = scores.mask(lambda plan, kinds=kinds: kind_of(plan.case.measurement) in kinds)
        result = line(scores, goal.name, mask)
        if result is not None:
            found.append(GoalLine(goal, result))
    return found


def coverage(scores: Scores) -> tuple[float, bool]:
    """Share of rows within their interval, and whether that is 80% ± 5."""
    share = float(np.mean(scores.inside))
    return share, COVERAGE[0] <= share <= COVERAGE[1]


def by_kind(plan: Plan) -> str:
    return NAMES[kind_of(plan.case.measurement)]


def by_class(plan: Plan) -> str:
    return prior_table().entries[f"device.{device_class(plan.case.hardware)}"].name


def by_segment(plan: Plan) -> str:
    return segment(plan.case.hardware)


def by_engine(plan: Plan) -> str:
    return prior_table().entries[f"engine.{plan.case.engine}"].name


def by_format(plan: Plan) -> str:
    """Bits a weight as stored, and how they are multiplied."""
    formats = plan.case.formats
    bits = formats.weights.bits
    stored = "16" if bits >= 15 else "7-9" if bits > 7 else "5-7" if bits > 5 else "up to 5"
    return f"{stored} bits a weight, {formats.activations.name} products"


def cell(plan: Plan) -> str:
    """Kind, engine, device: where residuals stick together."""
    row = plan.case.measurement
    return f"{by_kind(plan)}, {by_engine(plan)}, {plan.case.hardware.name} ({row.source_id})"


def worst_cells(scores: Scores, kinds: frozenset[Metric], count: int) -> list[Line]:
    """The groups that a goal loses most by: rows beyond it, times how far."""
    mask = scores.mask(lambda plan: kind_of(plan.case.measurement) in kinds)
    found: list[tuple[float, Line]] = []
    for name, group in scores.groups(cell).items():
        item = line(scores, name, group & mask)
        if item is not None:
            found.append((item.unseen.rows * item.unseen.median, item))
    found.sort(key=lambda pair: (-pair[0], pair[1].name))
    return [item for _, item in found[:count]]


def worst_rows(scores: Scores, count: int) -> list[int]:
    """Places of the rows with the largest error of unseen predictions, by ratio."""
    ratio = np.abs(np.log(scores.unseen / scores.measured))
    return np.argsort(-ratio, kind="stable")[:count].tolist()
