"""Geometry of server-rendered line charts: values in, SVG coordinates out.

A template draws what stands here (``fragments/line_chart.html``), together with the same values as
a table. Lengths are SVG user units, which are pixels at the chart's own width; labels keep one
size, so a phone gets a chart of its own (``WIDE`` and ``NARROW``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from webapp.charts import ChartSize, LogAxis, Tick

Kind = Literal["predicted", "measured", "published"]
LineStyle = Literal["1", "2", "3", "4", "5", "prefill", "decode"]

WIDE = ChartSize("wide", width=640, height=360, left=64, right=16, top=30, bottom=48)
NARROW = ChartSize("narrow", width=358, height=320, left=64, right=10, top=30, bottom=48)

_NICE = (1.0, 2.0, 5.0)
_MOST_TICKS = 7


class Axis(Protocol):
    """Turns a value into a coordinate, and says where the grid's lines are."""

    def position(self, value: float) -> float: ...
    @property
    def ticks(self) -> tuple[Tick, ...]: ...


@dataclass(frozen=True, slots=True)
class LinearAxis:
    """A linear axis from ``low`` at ``start`` to ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float

    def position(self, value: float) -> float:
        """The coordinate of ``value``, also outside the axis."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """A tick at each multiple of 1, 2 or 5 times a power of ten; at most seven or so."""
        step = _nice_step((self.high - self.low) / _MOST_TICKS)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return tuple(Tick(self.position(n * step), n * step) for n in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class FineLogAxis:
    """A logarithmic axis between any two values, with ticks at 1, 2 and 5 where it is short."""

    low: float
    high: float
    start: float
    end: float

    def position(self, value: float) -> float:
        """The coordinate of ``value`` (> 0), also outside the axis."""
        return self._axis.position(value)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        decades = math.log10(self.high / self.low)
        if decades >= _MOST_TICKS:
            return self._axis.ticks[:: math.ceil(decades / _MOST_TICKS)]
        if decades >= 2.5:
            return self._axis.ticks
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = (factor * 10.0**exponent for exponent in exponents for factor in _NICE)
        inside = (v for v in values if self.low * (1 - 1e-9) <= v <= self.high * (1 + 1e-9))
        return tuple(Tick(self.position(value), value) for value in inside)

    @property
    def _axis(self) -> LogAxis:
        return LogAxis(math.log10(self.low), math.log10(self.high), self.start, self.end)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart. ``name`` is what the reader sees, ``style`` picks its look.

    ``points``: values (x, y), x rising; a y that is None breaks the line there. ``band``: lower
    and upper values at the same x, where there are such.
    """

    name: str
    points: tuple[tuple[float, float | None], ...]
    style: LineStyle = "1"
    kind: Kind = "predicted"
    band: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Cross:
    """A vertical mark at ``x``, with words beside it."""

    x: float
    words: str


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A line in coordinates: an SVG path, its band's path, where its name stands, and the places
    of its points where each of them was measured."""

    line: Line
    path: str
    band: str
    end: tuple[float, float]
    label: tuple[float, float]
    dots: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class LineChart:
    """Everything that the template draws in one size."""

    size: ChartSize
    x: Axis
    y: Axis
    lines: tuple[DrawnLine, ...]
    crosses: tuple[tuple[float, str], ...]

    @property
    def left(self) -> float:
        return self.size.left

    @property
    def right(self) -> float:
        return self.size.width - self.size.right

    @property
    def bottom(self) -> float:
        return self.size.height - self.size.bottom


@dataclass(frozen=True, slots=True)
class ChartWords:
    """What a chart is called, what its axes are, and how a value is written in the table.

    ``y_tick`` writes a value at the upright axis; None writes the number alone.
    """

    id: str
    title: str
    description: str
    x: str
    y: str
    x_value: Callable[[float], str]
    y_value: Callable[[float], str]
    y_tick: Callable[[float], str] | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart in two sizes, with the table that says the same."""

    words: ChartWords
    wide: LineChart
    narrow: LineChart
    lines: tuple[Line, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(line.name for line in self.lines)

    @property
    def rows(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Rows of the table: x as text, and each line's value there ("—" where it has none)."""
        values = [dict(line.points) for line in self.lines]
        places = sorted({x for of_line in values for x in of_line})
        return tuple(
            (self.words.x_value(x), tuple(self._cell(of_line.get(x)) for of_line in values))
            for x in places
        )

    def _cell(self, value: float | None) -> str:
        return "—" if value is None else self.words.y_value(value)


def plot(
    words: ChartWords,
    lines: Sequence[Line],
    *,
    log_x: bool = False,
    log_y: bool = False,
    crosses: Sequence[Cross] = (),
) -> Plot:
    """A chart of ``lines``; at least one of them has a point.

    Raises:
        ValueError: there is no point to draw, or a logarithmic axis has a value that is not > 0.
    """
    wide, narrow = (
        _chart(size, tuple(lines), log_x=log_x, log_y=log_y, crosses=tuple(crosses))
        for size in (WIDE, NARROW)
    )
    return Plot(words, wide, narrow, tuple(lines))


def _chart(
    size: ChartSize,
    lines: tuple[Line, ...],
    *,
    log_x: bool,
    log_y: bool,
    crosses: tuple[Cross, ...],
) -> LineChart:
    xs = [x for line in lines for x, y in line.points if y is not None]
    ys = [y for line in lines for _, y in line.points if y is not None]
    ys += [value for line in lines for pair in line.band for value in pair]
    if not xs:
        raise ValueError("a chart needs a point")
    x = _axis(xs, size.left, size.width - size.right, log=log_x, room=0.0)
    y = _axis(ys, size.height - size.bottom, size.top, log=log_y, room=0.06)
    drawn = tuple(
        _drawn(line, x, y) for line in lines if any(v is not None for _, v in line.points)
    )
    return LineChart(
        size,
        x,
        y,
        _apart(drawn, size),
        tuple((x.position(cross.x), cross.words) for cross in crosses),
    )


def _axis(values: Sequence[float], start: float, end: float, *, log: bool, room: float) -> Axis:
    low, high = min(values), max(values)
    if log:
        if low <= 0:
            raise ValueError("a logarithmic axis needs values above zero")
        spread = max(math.log10(high / low), 0.3)
        middle = math.sqrt(low) * math.sqrt(high)
        half = 10 ** (spread * (0.5 + room))
        return FineLogAxis(middle / half, middle * half, start, end)
    low = min(low, 0.0)
    high = high if high > low else low + 1.0
    return LinearAxis(low, high + room * (high - low), start, end)


def _drawn(line: Line, x: Axis, y: Axis) -> DrawnLine:
    parts: list[str] = []
    pen = "M"
    end = (0.0, 0.0)
    for at, value in line.points:
        if value is None:
            pen = "M"
            continue
        end = (x.position(at), y.position(value))
        parts.append(f"{pen}{end[0]:.1f} {end[1]:.1f}")
        pen = "L"
    dots = (
        tuple((x.position(at), y.position(v)) for at, v in line.points if v is not None)
        if line.kind == "measured"
        else ()
    )
    return DrawnLine(line, "".join(parts), _band(line, x, y), end, (end[0], end[1] - 8), dots)


def _band(line: Line, x: Axis, y: Axis) -> str:
    if not line.band:
        return ""
    places = [x.position(at) for at, _ in line.points]
    lower = [y.position(low) for low, _ in line.band]
    upper = [y.position(high) for _, high in line.band]
    there = zip(places, upper, strict=True)
    back = zip(reversed(places), reversed(lower), strict=True)
    return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in (*there, *back)) + "Z"


def _apart(lines: tuple[DrawnLine, ...], size: ChartSize) -> tuple[DrawnLine, ...]:
    """The lines with their names moved so far apart that none covers another."""
    gap = 16.0
    by_height = sorted(range(len(lines)), key=lambda index: lines[index].label[1])
    places: dict[int, float] = {}
    lowest = size.top - gap / 2
    for index in by_height:
        lowest = max(lines[index].label[1], lowest + gap)
        places[index] = lowest
    # What was pushed below the axis goes up again.
    ceiling = size.height - size.bottom - 6.0
    for index in reversed(by_height):
        ceiling = min(places[index], ceiling)
        places[index] = ceiling
        ceiling -= gap
    return tuple(replace(d, label=(d.label[0], places[index])) for index, d in enumerate(lines))


def _nice_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next((n * power for n in _NICE if n * power >= rough * (1 - 1e-9)), 10 * power)
