"""A matrix of weights in a few bits: the one form that methods make and kernels take.

Shapes: o out_features · i in_features · q groups of a row, i / group_size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """``weight[o, i] ≈ levels[o, i] * scales[o, q] + offsets[o, q]`` with q = i // group_size.

    ``bits``: 4 or 8. ``levels_oi``: int8; from -127 to 127 for 8 bits, 0 to 15 for 4 bits.
    ``scales_oq``: float32 values that float16 can hold, so that storing them in 16 bits loses
    nothing. ``offsets_oq``: the same, or None for a symmetric 4-bit matrix whose zero is level 8
    (offset -8 · scale) or a symmetric 8-bit one (offset 0). A scale for a whole row or matrix is
    written once a row, with group_size = i.
    """

    bits: int
    group_size: int
    levels_oi: Tensor
    scales_oq: Tensor
    offsets_oq: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """``(out_features, in_features)``."""
        rows, columns = self.levels_oi.shape
        return rows, columns

    def dequantize(self) -> Tensor:
        """``[o, i]`` in float32: the slow path that every kernel is compared with."""
        rows, columns = self.shape
        levels = self.levels_oi.float().view(rows, -1, self.group_size)
        scales = self.scales_oq.unsqueeze(-1)
        if self.offsets_oq is not None:
            offsets = self.offsets_oq.unsqueeze(-1)
        else:
            offsets = -8 * scales if self.bits == 4 else torch.zeros(())
        return (levels * scales + offsets).view(rows, columns)
