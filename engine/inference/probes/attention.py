"""Answers about one layer's attention, out of the tensors that passed there.

Shapes: H query heads · h KV heads · t tokens · d head_dim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from engine.inference.probes.arrays import numbers, pack
from engine.inference.probes.documents import (
    Attention,
    AttentionDetail,
    RotatedPair,
    Rotation,
)

POINTS = ("q", "k", "q_rotated", "k_rotated", "v", "scores", "masked", "weights", "mixed")
"""What is recorded of a layer for these answers."""


def attention(
    seen: Mapping[str, Tensor], layer: int, head: int, ablations: tuple[str, ...]
) -> Attention:
    """Scores and weights of one head."""
    return Attention(
        ablations=ablations,
        layer=layer,
        head=head,
        kv_head=_kv_head(seen, head),
        scores=pack(seen["scores"][head]),
        weights=pack(seen["weights"][head]),
    )


def attention_detail(
    seen: Mapping[str, Tensor], layer: int, head: int, query: int, ablations: tuple[str, ...]
) -> AttentionDetail:
    """Every number of one query of one head."""
    kv_head = _kv_head(seen, head)
    keys_td, values_td = seen["k_rotated"][kv_head], seen["v"][kv_head]
    dots_t = keys_td @ seen["q_rotated"][head, query]
    scaled_t, weights_t = seen["scores"][head, query], seen["weights"][head, query]
    return AttentionDetail(
        ablations=ablations,
        layer=layer,
        head=head,
        kv_head=kv_head,
        query=query,
        scale=float(scaled_t @ dots_t / (dots_t @ dots_t)),
        q=numbers(seen["q"][head, query]),
        q_rotated=numbers(seen["q_rotated"][head, query]),
        keys=pack(seen["k"][kv_head]),
        keys_rotated=pack(keys_td),
        values=pack(values_td),
        dots=numbers(dots_t),
        scaled=numbers(scaled_t),
        visible=tuple((seen["masked"][head, query] > -math.inf).tolist()),
        weights=numbers(weights_t),
        weighted=pack(values_td * weights_t.unsqueeze(1)),
        mixed=numbers(seen["mixed"][head, query]),
    )


def rotation(
    seen: Mapping[str, Tensor], layer: int, position: int, ablations: tuple[str, ...]
) -> Rotation:
    """The angles by which a layer turns the pairs (j, j + d/2) of its heads at a position."""
    before = torch.cat((seen["q"], seen["k"])).double()
    after = torch.cat((seen["q_rotated"], seen["k_rotated"])).double()
    (a, b), (c, d) = before.chunk(2, dim=-1), after.chunk(2, dim=-1)
    # All heads turn alike, so their pairs are averaged, each by its length.
    angles_tj = torch.atan2((a * d - b * c).sum(0), (a * c + b * d).sum(0))
    half = angles_tj.shape[1]
    pairs = zip(angles_tj[position].tolist(), _steps(angles_tj), strict=True)
    return Rotation(
        ablations=ablations,
        layer=layer,
        position=position,
        pairs=tuple(
            RotatedPair((j, j + half), angle, step, 2 * math.pi / abs(step) if step else math.inf)
            for j, (angle, step) in enumerate(pairs)
        ),
    )


def _steps(angles_tj: Tensor) -> list[float]:
    """Radians that one position turns each pair by, from angles that are known up to whole turns.

    The step is known from position 1. At twice the distance it tells the number of whole turns, and
    the angle there halves the error, and so on: slow pairs turn by less than float32 resolves.
    """
    steps_j = angles_tj[1]
    place = 2
    while place < len(angles_tj):
        turns_j = ((steps_j * place - angles_tj[place]) / (2 * math.pi)).round()
        steps_j = (angles_tj[place] + 2 * math.pi * turns_j) / place
        place *= 2
    return steps_j.tolist()


def _kv_head(seen: Mapping[str, Tensor], head: int) -> int:
    return head * len(seen["k"]) // len(seen["q"])
