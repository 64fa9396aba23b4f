"""Geometry of server-rendered charts: values in, SVG coordinates out.

A template draws what stands here; a script adds live marks with the same scales, which the SVG
carries as ``data-*`` attributes. Lengths are SVG user units; where a size fits its column, pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid: where, and the value it stands for."""

    position: float
    value: float


@dataclass(frozen=True, slots=True)
class LogAxis:
    """A logarithmic axis from ``10**low`` at ``start`` to ``10**high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float

    def position(self, value: float) -> float:
        """The coordinate of ``value`` (> 0), also outside the axis."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """One tick at every power of ten."""
        first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
        return tuple(Tick(self.position(10.0**n), 10.0**n) for n in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class Roof:
    """What a machine can do at most: ``bandwidth`` in byte/s and ``peak`` in FLOP/s."""

    bandwidth: float
    peak: float

    @property
    def ridge(self) -> float:
        """Arithmetic intensity (FLOP/byte) at which both limits meet."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """The most FLOP/s at ``intensity`` FLOP/byte: min(bandwidth x intensity, peak)."""
        return min(self.bandwidth * intensity, self.peak)


@dataclass(frozen=True, slots=True)
class ChartSize:
    """Outer size and margins. Labels keep one size, so a phone gets a chart of its own."""

    name: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


WIDE = ChartSize("wide", width=640, height=400, left=64, right=14, top=26, bottom=48)
NARROW = ChartSize("narrow", width=358, height=340, left=54, right=8, top=26, bottom=48)

_INTENSITY_LOW, _INTENSITY_HIGH = -1.0, math.log10(3000)
_RATE_WITHOUT_ROOF = (7.0, 13.0)


@dataclass(frozen=True, slots=True)
class RooflineChart:
    """Everything that the roofline template draws. Without a ``roof`` there are only axes."""

    size: ChartSize
    x: LogAxis
    y: LogAxis
    roof: Roof | None

    @property
    def ridge_x(self) -> float:
        return self.x.position(self._roof.ridge)

    @property
    def peak_y(self) -> float:
        return self.y.position(self._roof.peak)

    @property
    def slope_start(self) -> tuple[float, float]:
        """Where the memory roof enters the chart."""
        intensity = 10**self.x.low
        return self.x.start, self.y.position(self._roof.attainable(intensity))

    @property
    def slope_degrees(self) -> float:
        """Rotation of a text that runs along the memory roof (negative: upwards)."""
        x, y = self.slope_start
        return math.degrees(math.atan2(self.peak_y - y, self.ridge_x - x))

    @property
    def slope_label(self) -> tuple[float, float]:
        """Where the memory roof's label ends: close to the ridge, a little above the line."""
        x, y = self.slope_start
        share = 0.94
        lift = 8 / math.cos(math.radians(self.slope_degrees))
        return x + share * (self.ridge_x - x), y + share * (self.peak_y - y) - lift

    @property
    def _roof(self) -> Roof:
        if self.roof is None:
            raise ValueError("this chart has no roof")
        return self.roof


def roofline_chart(roof: Roof | None, size: ChartSize) -> RooflineChart:
    """The roofline of a machine: FLOP/s over FLOP/byte, both logarithmic.

    The rate axis leaves room for points that reach only a hundredth of the memory roof at its
    left end, and for a label above the compute roof.
    """
    high_x = _INTENSITY_HIGH if roof is None else max(_INTENSITY_HIGH, math.log10(roof.ridge) + 0.5)
    x = LogAxis(_INTENSITY_LOW, high_x, start=size.left, end=size.width - size.right)
    if roof is None:
        low, high = _RATE_WITHOUT_ROOF
    else:
        low = math.floor(math.log10(roof.attainable(10**_INTENSITY_LOW)) - 0.5)
        high = math.log10(roof.peak) + 0.35
    y = LogAxis(low, high, start=size.height - size.bottom, end=size.top)
    return RooflineChart(size, x, y, roof)


@dataclass(frozen=True, slots=True)
class StripChart:
    """A run to scale in time on a line of ``width`` units: one block, then ticks of equal length.

    ``ticks`` holds the left ends of at most ``MOST_TICKS`` ticks; each stands for ``per_tick``
    steps.
    """

    width: float
    first: float
    tick: float
    ticks: tuple[float, ...]
    per_tick: int


STRIP_WIDTH = 1000.0
MOST_TICKS = 200


def strip_chart(first_s: float, gap_s: float, gaps: int) -> StripChart:
    """A strip for a first token after ``first_s`` and ``gaps`` more, ``gap_s`` apart (seconds)."""
    total = first_s + gap_s * gaps
    scale = STRIP_WIDTH / total
    per_tick = max(1, math.ceil(gaps / MOST_TICKS))
    step = gap_s * per_tick * scale
    first = first_s * scale
    count = math.ceil(gaps / per_tick) if gap_s > 0 else 0
    ticks = tuple(first + index * step for index in range(count))
    return StripChart(STRIP_WIDTH, first, step, ticks, per_tick)
