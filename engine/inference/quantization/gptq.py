"""GPTQ: round one input's weights at a time, and let those not yet rounded make up for the error.

Frantar et al. 2022, arXiv 2210.17323, algorithm 1: with H = E[x xᵀ] and U the upper Cholesky
factor of H⁻¹, rounding column c leaves the error e = (w_c - q_c) / U_cc in every row, and the
columns after it change by -e · U_c,>. The grid is that of rounding to nearest, fitted before
anything changes, so that columns can be taken in any order: the one whose input is largest first,
while many others are still free to make up for it (the authors' "act-order").

Shapes: o out_features · i in_features · q groups of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.inference.lane_settings import WeightSettings
from engine.inference.quantization.rtn import Grid, fit_grid
from engine.inference.quantization.tensor import QuantizedTensor

DAMPING = 0.1
"""Added to the diagonal of H, as a share of its mean: keeps H⁻¹ tame in directions that the
calibration text hardly has (section 3.3 of the paper, which takes 0.01 of far more text). With
4,096 tokens, SmolLM2-135M and groups of 128, this left a tenth less error than 0.01."""

_COLUMNS_AT_ONCE = 64  # The rest is updated once for so many columns, in one matrix product.


def gptq(
    weight_oi: Tensor,
    gram_ii: Tensor,
    settings: WeightSettings,
    *,
    damping: float = DAMPING,
    largest_first: bool = True,
) -> QuantizedTensor:
    """Quantise float32 ``[o, i]`` for inputs with the Gram matrix ``[i, i]``.

    Raises:
        UnsupportedModel: see ``fit_grid``.
    """
    grid = fit_grid(weight_oi, settings)
    energy = gram_ii.diagonal()
    if not energy.any():  # Nothing ever comes in: no error is better than another.
        return grid.tensor(grid.nearest(weight_oi))
    order = energy.argsort(descending=True) if largest_first else torch.arange(len(energy))
    factor = _inverse_factor(gram_ii[order][:, order], damping)
    levels_io = _round_in_order(weight_oi.T[order].contiguous(), grid, factor, order)
    return grid.tensor(levels_io[order.argsort()].T.contiguous())


def _inverse_factor(gram_ii: Tensor, damping: float) -> Tensor:
    """U with Uᵀ U = (G + damping)⁻¹, upper triangular; computed in float64."""
    damped = gram_ii.double()
    damped.diagonal().add_(damping * damped.diagonal().mean())
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    return torch.linalg.cholesky(inverse, upper=True).float()


def _round_in_order(weight_io: Tensor, grid: Grid, factor: Tensor, order: Tensor) -> Tensor:
    """Levels ``[i, o]``; ``weight_io`` has its inputs in ``order`` and is used up."""
    groups = (order // grid.group_size).tolist()
    scales_qo = grid.scales_oq.T.contiguous()
    steps_qo = torch.where(scales_qo == 0, 1.0, scales_qo)
    offsets_qo = torch.zeros(()) if grid.offsets_oq is None else grid.offsets_oq.T.contiguous()
    offsets_qo = offsets_qo.expand_as(scales_qo)
    count = len(groups)
    levels_io = torch.empty_like(weight_io)
    for first in range(0, count, _COLUMNS_AT_ONCE):
        end = min(first + _COLUMNS_AT_ONCE, count)
        errors = torch.empty_like(weight_io[first:end])
        for column in range(first, end):
            weight, q = weight_io[column], groups[column]
            level = (weight - offsets_qo[q]).div_(steps_qo[q]).round_()
            level.clamp_(grid.lowest, grid.highest)
            rounded = level * scales_qo[q] + offsets_qo[q]
            error = (weight - rounded).div_(factor[column, column])
            weight_io[column + 1 : end].addr_(factor[column, column + 1 : end], error, alpha=-1)
            levels_io[column], errors[column - first] = level, error
        weight_io[end:].addmm_(factor[first:end, end:].T, errors, alpha=-1)
    return levels_io
