"""Small numbers about every layer and head, gathered while the text runs through once."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.inference.probes.documents import HeadSummary

MAP_SIZE = 12
"""Rows and columns of a small map, of texts of at least so many tokens."""


class Summaries:
    """A tap that changes nothing. ``attention`` and ``mlp``: lengths of what each adds, ``[t]`` a
    layer; ``maps``: every head's weights on a small grid, ``[H, n, n]`` a layer."""

    def __init__(self) -> None:
        self.heads: list[HeadSummary] = []
        self.attention: list[Tensor] = []
        self.mlp: list[Tensor] = []
        self.maps: list[Tensor] = []

    def __call__(self, point: str, layer: int, tensor: Tensor) -> Tensor:
        if point == "weights":
            self.heads += summarise_heads(layer, tensor)
            self.maps.append(small_maps(tensor))
        elif point == "attn_out":
            self.attention.append(tensor.norm(dim=-1))
        elif point == "mlp_out":
            self.mlp.append(tensor.norm(dim=-1))
        return tensor


def summarise_heads(layer: int, weights: Tensor) -> list[HeadSummary]:
    """Of one layer's attention weights ``[H, t, t]``, each row a query's and of sum 1."""
    num_tokens = weights.shape[-1]
    positions = torch.arange(num_tokens, dtype=torch.float32)
    entropy = torch.special.entr(weights).sum(-1).mean(-1).tolist()
    distance = (positions - weights @ positions).mean(-1).tolist()
    own = weights.diagonal(dim1=1, dim2=2).mean(-1).tolist()
    first, previous = [None] * len(own), [None] * len(own)
    if num_tokens > 1:
        first = weights[:, 1:, 0].mean(-1).tolist()
        previous = weights.diagonal(-1, 1, 2).mean(-1).tolist()
    columns = zip(entropy, distance, first, previous, own, strict=True)
    return [HeadSummary(layer, head, *values) for head, values in enumerate(columns)]


def small_maps(weights: Tensor) -> Tensor:
    """``[H, n, n]`` of one layer's attention weights ``[H, t, t]``, n = min(t, ``MAP_SIZE``).

    The text is cut into n parts of nearly equal length; a number is the share of their weight that
    the queries of one part give to the keys of another, in the mean. Rows still sum to 1.
    """
    num_tokens = weights.shape[-1]
    size = min(num_tokens, MAP_SIZE)
    part_t = torch.arange(num_tokens) * size // num_tokens
    member_tn = torch.nn.functional.one_hot(part_t, size).to(weights.dtype)
    return (member_tn / member_tn.sum(0)).T @ weights @ member_tn
