"""Scaled dot-product attention with grouped query heads, over a ragged batch.

softmax(q kᵀ · scale) v (Vaswani et al. 2017, arXiv 1706.03762; grouped heads: Ainslie et al.
2023, arXiv 2305.13245). g query heads share one KV head, so they are treated as g rows of queries
of that head and keys are never repeated in memory.

Shapes: b sequences · t new tokens of one sequence · s positions that are read · h KV heads ·
g query heads per KV head · d head_dim · n matrices of a batched product, h or h * b · r rows of
queries of one matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.inference.kv_cache.vocabulary import CachedKV

# Measured on Zen 4 with oneDNN: in bfloat16, matrix products over tiles of queries take 0.5–0.7 of
# the time of the fused kernel, which multiplies in float32; below this many tokens, or in float32,
# the fused kernel wins.
TILE = 256
_FEWEST_TILED_TOKENS = 128

# From this many sequences on, batched matrix products beat the fused kernel on a CPU.
_FEWEST_BATCHED_SEQUENCES = 4


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """How the layers of a model attend; one for each kind of layer.

    ``scale``: factor of the scores, mostly head_dim ** -0.5. ``softcap``: scores become
    softcap · tanh(score / softcap) before anything is hidden (Gemma 2, arXiv 2408.00118).
    ``window``: positions that a token sees, itself included (Mistral 7B, arXiv 2310.06825); None
    for all before it.
    """

    scale: float
    softcap: float | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError("the scale of attention scores must be a finite number above 0")
        if self.softcap is not None and not (math.isfinite(self.softcap) and self.softcap > 0):
            raise ValueError("the soft cap of attention scores must be a finite number above 0")
        if self.window is not None and self.window < 1:
            raise ValueError("a token sees at least itself: the window must be at least 1")


@dataclass(frozen=True, slots=True)
class Tile:
    """``rows`` of queries that attend to ``columns`` of what was read.

    ``columns`` are a slice wherever they are next to each other. ``mask`` is 0 or -inf and belongs
    to the last columns, as many as it has; before them nothing is hidden.
    """

    rows: slice
    columns: slice | Tensor
    mask: Tensor


def wants_tiles(num_new: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a plain causal chunk is computed faster in tiles than by the fused kernel."""
    return device.type == "cpu" and dtype is torch.bfloat16 and num_new >= _FEWEST_TILED_TOKENS


def attend_one(q_thgd: Tensor, kv: CachedKV, mask_1s: Tensor | None, spec: AttentionSpec) -> Tensor:
    """The only new token of one sequence attends to all that was read: ``[1, h, g, d]``.

    ``mask_1s``: 0 or -inf, None where nothing is hidden.
    """
    if spec.softcap is None and kv.key_scales is None:
        # The g heads are the rows: nothing else is hidden from one than from another.
        return scaled_dot_product_attention(
            q_thgd, kv.keys[None], kv.values[None], attn_mask=mask_1s, scale=spec.scale
        )
    scores = _scores(q_thgd[0], kv.keys, spec, kv.key_scales)
    if mask_1s is not None:
        scores += mask_1s
    return _mix(scores, kv)[None]


def attend_causal(
    q_thgd: Tensor, kv: CachedKV, mask_ts: Tensor | None, spec: AttentionSpec
) -> Tensor:
    """New tokens of one sequence attend to plain keys, of which theirs are the last.

    ``mask_ts``: 0 or -inf; None where there are no other keys than theirs. ``[t, h, g, d]``.
    """
    group = q_thgd.shape[2]
    out_hgtd = scaled_dot_product_attention(
        q_thgd.permute(1, 2, 0, 3),
        kv.keys.unsqueeze(1).expand(-1, group, -1, -1),
        kv.values.unsqueeze(1).expand(-1, group, -1, -1),
        attn_mask=mask_ts,
        is_causal=mask_ts is None,
        scale=spec.scale,
    )
    return out_hgtd.permute(2, 0, 1, 3)


def attend_tiles(
    q_thgd: Tensor, kv: CachedKV, tiles: Sequence[Tile], spec: AttentionSpec
) -> Tensor:
    """New tokens of one sequence attend to what each tile of them sees: ``[t, h, g, d]``.

    Scales of ``kv`` are to be applied before: it has fewer numbers than there are scores.
    """
    _, heads, group, dim = q_thgd.shape
    out_thgd = torch.empty_like(q_thgd, memory_format=torch.contiguous_format)
    for tile in tiles:
        keys, values = (_columns(part, tile.columns) for part in (kv.keys, kv.values))
        # Row-major over (g, t), so that a KV head is one matrix product for all its query heads.
        queries = q_thgd[tile.rows].permute(1, 2, 0, 3)
        rows = queries.shape[2]
        scores = _scores(queries.reshape(heads, group * rows, dim), keys, spec)
        masked = tile.mask.shape[1]
        scores.view(heads, group, rows, -1)[..., scores.shape[2] - masked :].add_(tile.mask)
        mixed = torch.bmm(scores.softmax(-1), values)
        out_thgd[tile.rows] = mixed.view(heads, group, rows, dim).permute(2, 0, 1, 3)
    return out_thgd


def attend_batch(q_bhgd: Tensor, kv_hb: CachedKV, mask_n1s: Tensor, spec: AttentionSpec) -> Tensor:
    """One new token of each of b sequences attends to its own keys: ``[b, h, g, d]``.

    ``kv_hb`` holds matrices of h * b; ``mask_n1s`` is 0 or -inf, ``[h * b, 1, s]``.
    """
    batch, heads, group, dim = q_bhgd.shape
    q_hbgd = q_bhgd.transpose(0, 1)
    plain = spec.softcap is None and kv_hb.key_scales is None
    if plain and (q_bhgd.device.type != "cpu" or batch < _FEWEST_BATCHED_SEQUENCES):
        seen = kv_hb.keys.shape[1]
        out = scaled_dot_product_attention(
            q_hbgd,
            kv_hb.keys.view(heads, batch, seen, dim),
            kv_hb.values.view(heads, batch, seen, dim),
            attn_mask=mask_n1s.view(heads, batch, 1, seen).expand(-1, -1, group, -1),
            scale=spec.scale,
        )
        return out.transpose(0, 1)
    q_ngd = q_hbgd.reshape(heads * batch, group, dim)
    if plain:
        scores = torch.baddbmm(mask_n1s, q_ngd, kv_hb.keys.transpose(1, 2), alpha=spec.scale)
    else:
        scores = _scores(q_ngd, kv_hb.keys, spec, kv_hb.key_scales).add_(mask_n1s)
    return _mix(scores, kv_hb).view(heads, batch, group, dim).transpose(0, 1)


def _scores(
    q_nrd: Tensor, keys_nsd: Tensor, spec: AttentionSpec, key_scales_ns: Tensor | None = None
) -> Tensor:
    """Scores before anything is hidden, ``[n, r, s]``."""
    scores = torch.bmm(q_nrd * spec.scale, keys_nsd.transpose(1, 2))
    if key_scales_ns is not None:
        # A scale belongs to a whole key, so it can wait until the products are summed.
        scores *= key_scales_ns.unsqueeze(1)
    if spec.softcap is not None:
        scores = scores.div_(spec.softcap).tanh_().mul_(spec.softcap)
    return scores


def _mix(scores_nrs: Tensor, kv: CachedKV) -> Tensor:
    """Values weighted by the softmax of the scores, ``[n, r, d]``."""
    # softmax computes in float32 inside, whatever the dtype.
    weights = scores_nrs.softmax(-1)
    if kv.value_scales is not None:
        weights *= kv.value_scales.unsqueeze(1)
    return torch.bmm(weights, kv.values)


def _columns(part_nsd: Tensor, columns: slice | Tensor) -> Tensor:
    return part_nsd[:, columns] if isinstance(columns, slice) else part_nsd.index_select(1, columns)
