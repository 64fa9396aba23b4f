"""Which knob moves TTFT and ITL most now: elasticities, by pricing the cell again on both sides.

An elasticity of -0.9 for bandwidth says that 1% more of it takes 0.9% of the time away. It is
d ln(metric) / d ln(knob), here the slope between two cells close by; whole numbers, such as a
batch, take the next ones that differ by a twentieth or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engine.catalog.attention import CompressedAttention, SparseAttention
from engine.catalog.precision import get_format
from engine.simulator.formats import resolve_formats
from engine.simulator.search.cell import FACTORS, Cell
from engine.simulator.search.estimate import Metrics, estimate

_STEP = 1e-3
_BITS_STEP = 0.01
_WHOLE = ("batch", "prompt_tokens", "context_tokens")
_METRICS = ("ttft", "itl")


@dataclass(frozen=True, slots=True)
class Elasticity:
    """The slope of a metric with a knob, and the two cells' values that it comes from.

    ``knob`` is one of a cell's, or "weight_bits" and "kv_bits". The values of the metric are in s.
    """

    metric: str
    knob: str
    value: float
    low: tuple[float, float]
    high: tuple[float, float]

    @property
    def formula(self) -> str:
        """The slope with its values."""
        (x0, y0), (x1, y1) = self.low, self.high
        return f"ln({y1:.6g} s / {y0:.6g} s) / ln({x1:.6g} / {x0:.6g})"


def sensitivities(cell: Cell, *, one_by_one: bool = False) -> tuple[Elasticity, ...]:
    """All elasticities of the cell's TTFT and ITL, the largest of each metric first.

    Where requests come ``one_by_one``, a first token takes the prefill of its own prompt: no batch
    moves it.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``estimate``.
    """
    found: list[Elasticity] = []
    if one_by_one:
        alone = _slopes(replace(cell, batch=1), ("ttft",))
        found += (item for item in alone if item.knob != "batch")
        found += _slopes(cell, ("itl",))
    else:
        found += _slopes(cell, _METRICS)
    return tuple(sorted(found, key=lambda item: (_METRICS.index(item.metric), -abs(item.value))))


def _slopes(cell: Cell, metrics: Sequence[str]) -> Iterator[Elasticity]:
    for knob, low, high, cells in _neighbours(cell):
        below, above = (estimate(neighbour) for neighbour in cells)
        for metric in metrics:
            slope = _slope(metric, knob, (low, below), (high, above))
            if slope is not None:
                yield slope


def _slope(
    metric: str, knob: str, low: tuple[float, Metrics], high: tuple[float, Metrics]
) -> Elasticity | None:
    """None where one output token has no gap."""
    y0, y1 = getattr(low[1], metric), getattr(high[1], metric)
    if math.isnan(y0):
        return None
    value = math.log(y1 / y0) / math.log(high[0] / low[0])
    return Elasticity(metric, knob, value, (low[0], y0), (high[0], y1))


def _neighbours(cell: Cell) -> Iterator[tuple[str, float, float, tuple[Cell, Cell]]]:
    """Each knob with its values on both sides, and their cells."""
    for knob in FACTORS:
        if cell.times == "ideal" and knob in ("launch_factor", "host_factor"):
            continue
        least, most = Cell.FACTOR_RANGE
        low = max(getattr(cell, knob) * math.exp(-_STEP), least)
        high = min(getattr(cell, knob) * math.exp(_STEP), most)
        yield knob, low, high, (replace(cell, **{knob: low}), replace(cell, **{knob: high}))
    for knob in _WHOLE:
        now: int = getattr(cell, knob)
        apart = max(round(now / 20), 1)
        low, high = max(now - apart, 1), now + apart
        if now and high <= Cell.RANGES[knob][1]:
            yield knob, low, high, (replace(cell, **{knob: low}), replace(cell, **{knob: high}))
    yield _bits(cell, "weights")
    pattern = cell.model_spec.attention
    if not isinstance(pattern, SparseAttention | CompressedAttention):
        # These caches have a layout of their own at 8 bits: bits are no knob that turns there.
        yield _bits(cell, "kv")


def _bits(cell: Cell, format_of: str) -> tuple[str, float, float, tuple[Cell, Cell]]:
    """A format of a little fewer and of a little more bits, at the same rate of arithmetic."""
    formats = resolve_formats(cell.hardware_spec, cell.weights, cell.kv, cell.activations)
    fixed = replace(cell, activations=formats.activations.name)
    bits = get_format(getattr(cell, format_of)).bits
    low, high = (round(bits * (1 + sign * _BITS_STEP), 3) for sign in (-1, 1))
    cells = [replace(fixed, **{format_of: f"mixed-{value:.3f}"}) for value in (low, high)]
    name = "weight_bits" if format_of == "weights" else "kv_bits"
    return name, low, high, (cells[0], cells[1])
