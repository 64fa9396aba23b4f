"""Where each operator of a prefill and of a decode step lands on a device's roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.catalog.units import bytes_label, si_label, significant, time_label
from engine.simulator.roofline import PricedOperator
from webapp.charts import NARROW, WIDE, ChartSize, LogAxis, Roof, RooflineChart

Phase = Literal["prefill", "decode"]
_NAMED = 3
"""Operators of a phase that are named in the picture: those that take longest."""
_LEAST, _MOST = 3.0, 11.0
"""Radii of marks, in SVG units: the area grows with the share of the step's time."""


@dataclass(frozen=True, slots=True)
class OperatorMark:
    """One operator in coordinates. ``label`` is where its name stands; None: it is not named."""

    phase: Phase
    name: str
    x: float
    y: float
    radius: float
    label: tuple[float, float] | None

    @property
    def diamond(self) -> str:
        """The path of a diamond of that radius: prefill's shape."""
        return f"M{self.x:.1f} {self.y - self.radius:.1f}l{self.radius:.1f} {self.radius:.1f}" + (
            f" -{self.radius:.1f} {self.radius:.1f} -{self.radius:.1f} -{self.radius:.1f}Z"
        )


@dataclass(frozen=True, slots=True)
class OperatorChart:
    """A roofline in one size with the marks on it."""

    frame: RooflineChart
    marks: tuple[OperatorMark, ...]


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """The same operator as a row of the table."""

    name: str
    flops: str
    bytes: str
    intensity: str
    time: str
    share: str
    bound: str


@dataclass(frozen=True, slots=True)
class OperatorsView:
    """Both sizes of the picture and the tables of both phases."""

    wide: OperatorChart
    narrow: OperatorChart
    rows: Mapping[Phase, tuple[OperatorRow, ...]]
    bandwidth: str
    peak: str
    ridge: str


def operators_view(roof: Roof, phases: Mapping[Phase, Sequence[PricedOperator]]) -> OperatorsView:
    """The operators of one device. Those without arithmetic stand in the tables alone."""
    wide, narrow = (_chart(roof, phases, size) for size in (WIDE, NARROW))
    return OperatorsView(
        wide,
        narrow,
        {phase: _rows(priced) for phase, priced in phases.items()},
        si_label(roof.bandwidth, "B/s"),
        si_label(roof.peak, "FLOP/s"),
        significant(roof.ridge),
    )


def _chart(
    roof: Roof, phases: Mapping[Phase, Sequence[PricedOperator]], size: ChartSize
) -> OperatorChart:
    intensities = [
        item.operator.intensity
        for priced in phases.values()
        for item in priced
        if item.operator.flops
    ]
    low = math.log10(min(0.5, *intensities)) - 0.15
    high = math.log10(max(roof.ridge * 4, *intensities)) + 0.15
    x = LogAxis(low, high, size.left, size.width - size.right)
    bottom = math.log10(roof.attainable(10**low)) - 0.4
    y = LogAxis(bottom, math.log10(roof.peak) + 0.5, size.height - size.bottom, size.top)
    frame = RooflineChart(size, x, y, roof)
    marks = [
        mark for phase, priced in phases.items() for mark in _marks(frame, roof, phase, priced)
    ]
    return OperatorChart(frame, tuple(marks))


def _marks(
    frame: RooflineChart, roof: Roof, phase: Phase, priced: Sequence[PricedOperator]
) -> list[OperatorMark]:
    total = sum(item.time for item in priced)
    drawn = sorted((i for i in priced if i.operator.flops), key=lambda i: i.time, reverse=True)
    places = [
        (
            frame.x.position(item.operator.intensity),
            frame.y.position(roof.attainable(item.operator.intensity)),
        )
        for item in drawn
    ]
    # Names stand in one stack: prefill's above all of its marks, decode's below, so that they
    # cover neither each other nor the other phase's.
    named = places[:_NAMED]
    if phase == "prefill":
        heights = [min(y for _, y in named) - 18 - 15 * index for index in range(len(named))]
    else:
        heights = [max(y for _, y in named) + 24 + 15 * index for index in range(len(named))]
    marks: list[OperatorMark] = []
    for index, (item, (x, y)) in enumerate(zip(drawn, places, strict=True)):
        radius = _LEAST + (_MOST - _LEAST) * math.sqrt(item.time / total)
        label = (x, heights[index]) if index < _NAMED else None
        marks.append(OperatorMark(phase, item.operator.name, x, y, radius, label))
    return marks


def _rows(priced: Sequence[PricedOperator]) -> tuple[OperatorRow, ...]:
    total = sum(item.time for item in priced)
    return tuple(
        OperatorRow(
            item.operator.name,
            si_label(item.operator.flops, "FLOP"),
            bytes_label(item.operator.bytes),
            significant(item.operator.intensity),
            time_label(item.time),
            f"{item.time / total:.1%}",
            item.bound.value,
        )
        for item in priced
    )
