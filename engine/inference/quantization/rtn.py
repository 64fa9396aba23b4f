"""Round to nearest: the plainest quantisation, and the grid that the other methods round to.

4 bits are asymmetric: level 0 is the smallest weight of a group and level 15 the largest. That is
never coarser than a symmetric grid of the same 16 levels, and it is the grid of ggml's Q4_1, so
that weights which come from such a file fall on its own levels again. The price is a second
16-bit number for each group. 8 bits are symmetric, -127 to 127: their step is so small that an
offset would cost more than it saves.

Shapes: o out_features · i in_features · q groups of a row · g weights of a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import UnsupportedModel
from engine.inference.lane_settings import Granularity, WeightSettings
from engine.inference.quantization.tensor import QuantizedTensor

_UNIT = 32  # Kernels read weights in runs of so many, so a group is whole runs.
_LARGEST_HALF = 65_504.0
_UP = torch.tensor(torch.inf, dtype=torch.float16)


def group_size_of(settings: WeightSettings, in_features: int) -> int:
    """Neighbouring weights of a row that share a scale; ``in_features`` where a whole row does.

    Where the size asked for does not divide a row (128 in a row of 576), it is the largest
    multiple of 32 below it that does (96); where there is none, the row.
    """
    if settings.granularity is not Granularity.GROUP:
        return in_features
    sizes = range(settings.group_size, 0, -_UNIT)
    return next((size for size in sizes if in_features % size == 0), in_features)


@dataclass(frozen=True, slots=True)
class Grid:
    """The levels that weights may take: ``level * scales_oq + offsets_oq``, level low to high."""

    bits: int
    group_size: int
    scales_oq: Tensor
    offsets_oq: Tensor | None

    @property
    def lowest(self) -> int:
        return 0 if self.bits == 4 else -127

    @property
    def highest(self) -> int:
        return 15 if self.bits == 4 else 127

    def nearest(self, weight_oi: Tensor) -> Tensor:
        """The level nearest to each weight, float32 ``[o, i]``."""
        rows, columns = weight_oi.shape
        groups = weight_oi.view(rows, -1, self.group_size)
        if self.offsets_oq is not None:
            groups = groups - self.offsets_oq.unsqueeze(-1)
        # A group of equal weights has the scale 0, and every level says the same.
        scales = torch.where(self.scales_oq == 0, 1.0, self.scales_oq)
        levels = (groups / scales.unsqueeze(-1)).round_().clamp_(self.lowest, self.highest)
        return levels.view(rows, columns)

    def tensor(self, levels_oi: Tensor) -> QuantizedTensor:
        """A matrix of these levels."""
        return QuantizedTensor(
            bits=self.bits,
            group_size=self.group_size,
            levels_oi=levels_oi.to(torch.int8),
            scales_oq=self.scales_oq,
            offsets_oq=self.offsets_oq,
        )


def fit_grid(weight_oi: Tensor, settings: WeightSettings) -> Grid:
    """The finest grid that reaches from the smallest to the largest weight of each group.

    Scales and offsets are rounded to float16 before any weight is, so that no weight is further
    than half a step from its level once they are stored.

    Raises:
        UnsupportedModel: weights that are not finite, or too large for a scale of 16 bits.
    """
    bits = settings.bits
    if bits not in (4, 8):
        raise ValueError("only int8 and int4 are quantised here")
    rows, columns = weight_oi.shape
    group_size = group_size_of(settings, columns)
    groups = weight_oi.view(rows, -1, group_size)
    low, high = groups.amin(-1), groups.amax(-1)
    if settings.granularity is Granularity.TENSOR:
        low, high = low.amin().expand_as(low), high.amax().expand_as(high)
    if not (low.isfinite().all() and high.isfinite().all()):
        raise UnsupportedModel("weights that are not finite cannot be quantised")
    if max(float(-low.amin()), float(high.amax())) > _LARGEST_HALF:
        raise UnsupportedModel("weights are too large for scales of 16 bits")
    if bits == 8:
        return Grid(8, group_size, _half_scale(torch.maximum(-low, high), 127), None)
    offsets = _half_at_most(low)
    return Grid(4, group_size, _half_scale(high - offsets, 15), offsets)


def round_to_nearest(weight_oi: Tensor, settings: WeightSettings) -> QuantizedTensor:
    """Each weight at the level nearest to it; float32 ``[o, i]`` in.

    Raises:
        UnsupportedModel: see ``fit_grid``.
    """
    grid = fit_grid(weight_oi, settings)
    return grid.tensor(grid.nearest(weight_oi))


def _half_scale(span: Tensor, steps: int) -> Tensor:
    """``span / steps`` as float16, rounded up only where the nearest would leave the end of the
    span more than half a step beyond the last level (numbers near the smallest of float16)."""
    scale = (span / steps).half()
    falls_short = span > (steps + 0.5) * scale.float()
    return torch.where(falls_short, scale.nextafter(_UP), scale).float()


def _half_at_most(x: Tensor) -> Tensor:
    """The largest float16 that is not above ``x``."""
    half = x.half()
    return torch.where(half.float() > x, half.nextafter(-_UP), half).float()
