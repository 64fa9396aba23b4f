"""What the matrices of a model read, as sums over a text: all that AWQ and GPTQ need to know.

The Gram matrix G = E[x xᵀ] of a matrix's inputs tells how much any change D of its weights
changes its outputs: E|D x|² = Σ over the rows d of D of d G dᵀ. Its diagonal is the mean square of
each input.

Shapes: t tokens · i in_features · H query heads · d head_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

Grams = dict[str, Tensor]
"""``[i, i]`` by the point where the inputs were tapped: ``READERS`` of one layer, or the head's."""

READERS: dict[str, tuple[str, ...]] = {
    "attn_in": ("q", "k", "v"),
    "mixed": ("o",),
    "mlp_in": ("gate", "up"),
    "act": ("down",),
}
"""The points of a layer whose tensors are inputs of matrices, and those matrices."""

HEAD_POINT = "final"


class GramTap:
    """A tap (``ReferenceModel``) that averages x xᵀ wherever a matrix reads x."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._num_tokens: dict[str, int] = {}

    def __call__(self, point: str, layer: int, x: Tensor) -> Tensor:
        """Count ``[t, i]``, or heads ``[H, t, d]`` side by side as the output projection reads
        them; gives back ``x``."""
        if point in READERS or point == HEAD_POINT:
            x_ti = x.transpose(0, 1).flatten(1) if x.dim() == 3 else x
            num_tokens, width = x_ti.shape
            total = self._sums.setdefault(point, torch.zeros(width, width))
            total.addmm_(x_ti.T, x_ti)
            self._num_tokens[point] = self._num_tokens.get(point, 0) + num_tokens
        return x

    def averages(self) -> Grams:
        """The Gram matrices of all points since the last call, and begin anew."""
        grams = {point: total / self._num_tokens[point] for point, total in self._sums.items()}
        self._sums, self._num_tokens = {}, {}
        return grams


def output_error(change_oi: Tensor, gram_ii: Tensor) -> float:
    """E|D x|²: the mean square that a change of the weights makes in all outputs together."""
    return float(torch.sum((change_oi @ gram_ii) * change_oi))
