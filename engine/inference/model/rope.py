"""Rotary position embeddings (Su et al. 2021, arXiv 2104.09864), as products of complex numbers.

A head of d numbers is d/2 points in the plane; at position m, point j turns by m · theta^(-2j/d).
Checkpoints keep the two coordinates of a point half a head apart (j and j + d/2). The rows of q
and k are reordered once at loading, so that they are neighbours and a point is one complex number:
the rotation is then a single multiplication. Scores q · k do not change, because both are reordered
alike.

Shapes: t tokens · h heads · d head_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.inference.model.rope_frequencies import Rope

_POSITIONS_AT_ONCE = 4_096


def halves_to_pairs(weight: Tensor, head_dim: int) -> Tensor:
    """Reorder the rows of a projection to heads (first dimension h · d): j, j + d/2 together."""
    halves = weight.reshape(-1, 2, head_dim // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


class RotaryTable:
    """The turns of all positions below ``max_positions``, computed in float64 once and kept in
    half as many bits. A turn is longer than 1 where the embedding lengthens what it turns."""

    def __init__(self, rope: Rope, head_dim: int, max_positions: int, device: torch.device) -> None:
        frequencies = torch.tensor(rope.frequencies(head_dim), dtype=torch.float64)
        turns = torch.empty(max_positions, head_dim // 2, dtype=torch.complex64, device=device)
        # In parts: the float64 numbers of a long context would take several times the table.
        for first in range(0, max_positions, _POSITIONS_AT_ONCE):
            part = turns[first : first + _POSITIONS_AT_ONCE]
            positions = torch.arange(first, first + len(part), dtype=torch.float64)
            angles = torch.outer(positions, frequencies)
            part.copy_(torch.polar(torch.full_like(angles, rope.amplitude), angles))
        self.turns = turns

    @property
    def max_positions(self) -> int:
        """Positions from here on have no turns."""
        return len(self.turns)

    @property
    def nbytes(self) -> int:
        return self.turns.nbytes

    def at(self, positions_t: Tensor) -> Tensor:
        """Complex turns ``[t, 1, d/2]`` of these positions, for all heads."""
        return self.turns[positions_t].unsqueeze(1)


def rotate_(x_thd: Tensor, turns: Tensor) -> None:
    """Rotate heads in place; the arithmetic is float32 for every dtype."""
    tokens, heads, dim = x_thd.shape
    pairs = x_thd.view(tokens, heads, dim // 2, 2)
    if x_thd.dtype is torch.float32:
        torch.view_as_complex(pairs).mul_(turns)
    else:
        rotated = torch.view_as_complex(pairs.float()).mul_(turns)
        pairs.copy_(torch.view_as_real(rotated))
