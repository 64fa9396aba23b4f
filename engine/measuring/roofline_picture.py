"""The roofline as SVG: the roof, and each point's steps as measured and as predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from engine.catalog.units import count, si_label, significant
from engine.measuring.comparison import Comparison, Dot

_WIDTH, _HEIGHT = 680, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 20, 50
_RADIUS = 5


class _Axis:
    """A logarithmic axis over whole decades, from ``start`` to ``end`` in user units."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.first, self.last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        self.last = max(self.last, self.first + 1)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return self._start + share * (self._end - self._start)

    @property
    def low(self) -> float:
        return 10.0**self.first

    @property
    def high(self) -> float:
        return 10.0**self.last

    @property
    def ticks(self) -> list[float]:
        return [10.0**exponent for exponent in range(self.first, self.last + 1)]


def roofline_picture(comparison: Comparison) -> str:
    """An ``svg`` element; its title says what it shows, and the table beside it has the numbers."""
    dots = [dot for item in comparison.points for dot in item.dots]
    curve = comparison.curve
    intensities = [dot.intensity for dot in dots]
    rates = [rate for dot in dots for rate in (dot.measured, dot.typical)]
    across = _Axis(
        min([*intensities, curve.ridge_point]) / 2,
        max([*intensities, curve.ridge_point]) * 2,
        _LEFT,
        _WIDTH - _RIGHT,
    )
    up = _Axis(
        min([*rates, curve.attainable(across.low)]),
        max([*rates, curve.peak]),
        _HEIGHT - _BOTTOM,
        _TOP,
    )
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="roof-title">',
        '<title id="roof-title">Measured and predicted steps under the roofline</title>',
        *_grid(across, up),
        _roof(comparison, across, up),
        *(mark for dot in dots for mark in _marks(dot, across, up)),
        "</svg>",
    ]
    return "\n".join(parts)


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value in across.ticks:
        x = across.at(value)
        yield f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
        yield (f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">'
               f"{escape(significant(value, 1))}</text>")  # fmt: skip
    for value in up.ticks:
        y = up.at(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
        yield (f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
               f"{escape(si_label(value, 'FLOP/s'))}</text>")  # fmt: skip
    yield (f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 10}" text-anchor="middle">'
           "arithmetic intensity, FLOP/B</text>")  # fmt: skip


def _roof(comparison: Comparison, across: _Axis, up: _Axis) -> str:
    curve = comparison.curve
    corners = (across.low, curve.ridge_point, across.high)
    path = "L".join(f"{across.at(x):.1f} {up.at(curve.attainable(x)):.1f}" for x in corners)
    return f'<path class="roof" d="M{path}"/>'


def _marks(dot: Dot, across: _Axis, up: _Axis) -> Iterator[str]:
    x = across.at(dot.intensity)
    for kind, rate in (("predicted", dot.typical), ("measured", dot.measured)):
        y = up.at(rate)
        words = (
            f"{dot.phase}, {count(dot.sequences, 'sequence')}, {kind}: {si_label(rate, 'FLOP/s')}"
        )
        title = f"<title>{escape(words)}</title>"
        style = f'class="{dot.phase} {kind}"'
        if dot.phase == "prefill":
            side = 2 * _RADIUS
            yield (f'<rect {style} x="{x - _RADIUS:.1f}" y="{y - _RADIUS:.1f}" '
                   f'width="{side}" height="{side}">{title}</rect>')  # fmt: skip
        else:
            yield f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}">{title}</circle>'
