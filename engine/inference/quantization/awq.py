"""AWQ: inputs that are large deserve finer steps, so scale their columns up before rounding.

Lin et al. 2023, arXiv 2306.00978: W x = (W · diag(s)) (x / s) for any s, and rounding W · diag(s)
errs less where s is large. s = (root mean square of each input)^α, and α is searched on a grid for
the least error of the outputs; α = 0 is rounding to nearest, so the search never does worse on the
calibration text. x / s costs nothing, because what comes before takes it in: the weights of a norm,
or the rows of the matrix whose outputs are x.

Shapes: o out_features · i in_features · h KV heads · g query heads per KV head · d head_dim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.inference.lane_settings import Granularity, WeightSettings
from engine.inference.model.config import ModelConfig
from engine.inference.quantization.grams import READERS, Grams, output_error
from engine.inference.quantization.rtn import round_to_nearest

Tensors = dict[str, Tensor]
"""A layer's tensors under their names within it, in float32."""

_ALPHAS = tuple(step / 20 for step in range(20))
_LEAST_SHARE = 1e-4  # Of the mean square: an input that is nearly always 0 gets no wild scale.


def search_scales(
    tensors: Mapping[str, Tensor],
    grams: Grams,
    config: ModelConfig,
    settings: WeightSettings,
) -> dict[str, Tensor]:
    """The scales s ``[i]`` of a layer, by the point whose tensor they divide (``READERS``).

    Left out where something non-linear stands before the matrix (``down`` of an MLP without a
    gate). With one scale for a whole matrix, also where a matrix before it would have to take s
    into its rows: rows of different sizes would widen that matrix's one range.
    """
    points = ["attn_in", "mlp_in"]
    if settings.granularity is not Granularity.TENSOR:
        points += ["mixed", "act"] if "gate" in tensors else ["mixed"]
    scales: dict[str, Tensor] = {}
    for point in points:
        gram = grams[point]
        matrices = [tensors[name] for name in READERS[point] if name in tensors]
        energy = gram.diagonal()
        if point == "mixed":
            energy = _shared_by_queries(energy, config)
        scales[point] = best_scale(matrices, gram, energy, settings)
    return scales


def fold(
    tensors: Mapping[str, Tensor], scales: Mapping[str, Tensor], config: ModelConfig
) -> Tensors:
    """The same function with the scales inside: columns times s, and 1/s in what comes before."""
    folded = dict(tensors)
    for point, scale in scales.items():
        for name in READERS[point]:
            if name in folded:
                folded[name] = folded[name] * scale
    if "attn_in" in scales:
        divide_norm(folded, "attn_norm", scales["attn_in"], config)
    if "mlp_in" in scales:
        divide_norm(folded, "mlp_norm", scales["mlp_in"], config)
    if "mixed" in scales:
        one_a_value = scales["mixed"].view(config.num_kv_heads, -1, config.head_dim)[:, 0]
        _divide_rows(folded, "v", one_a_value.flatten())
    if "act" in scales:
        _divide_rows(folded, "up", scales["act"])
    return folded


def best_scale(
    matrices: Sequence[Tensor], gram: Tensor, energy: Tensor, settings: WeightSettings
) -> Tensor:
    """The s ``[i]`` of least error for matrices that read the same inputs, whose Gram matrix is
    ``gram`` and whose mean squares count as ``energy``."""
    floor = _LEAST_SHARE * energy.mean()
    size = energy.clamp_min(floor).sqrt() if floor > 0 else torch.ones_like(energy)
    best, least = torch.ones_like(size), float("inf")
    for alpha in _ALPHAS:
        scale = size**alpha
        scale /= (scale.amax() * scale.amin()).sqrt()
        error = 0.0
        for weight in matrices:
            rounded = round_to_nearest(weight * scale, settings).dequantize()
            error += output_error(rounded / scale - weight, gram)
        if error < least:
            best, least = scale, error
    return best


def _shared_by_queries(energy: Tensor, config: ModelConfig) -> Tensor:
    """Query heads of one KV head mix the same values, whose rows can take in one scale only."""
    grouped = energy.view(config.num_kv_heads, -1, config.head_dim)
    return grouped.mean(1, keepdim=True).expand_as(grouped).flatten()


def _divide_rows(tensors: Tensors, name: str, scale_o: Tensor) -> None:
    tensors[name] = tensors[name] / scale_o.unsqueeze(1)
    bias = f"{name}_bias"
    if bias in tensors:
        tensors[bias] = tensors[bias] / scale_o


def divide_norm(tensors: Tensors, name: str, scale_i: Tensor, config: ModelConfig) -> None:
    """Let a norm's outputs come out divided by s, its bias included."""
    offset = config.norm_offset
    tensors[name] = (tensors[name] + offset) / scale_i - offset
    bias = f"{name}_bias"
    if bias in tensors:
        tensors[bias] = tensors[bias] / scale_i
