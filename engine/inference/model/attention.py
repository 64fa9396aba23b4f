"""Scaled dot-product attention with grouped query heads, over a ragged batch.

softmax(q kᵀ / sqrt(d)) v (Vaswani et al. 2017, arXiv 1706.03762; grouped heads: Ainslie et al.
2023, arXiv 2305.13245). g query heads share one KV head, so they are treated as g rows of queries
of that head and keys are never repeated in memory.

Shapes: b sequences · t new tokens of one sequence · s positions in the cache · h KV heads ·
g query heads per KV head · d head_dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Mask = Tensor | None

# Measured on Zen 4 with oneDNN: in bfloat16, matrix products over tiles of queries take 0.5–0.7 of
# the time of the fused kernel, which multiplies in float32; below this many tokens, or in float32,
# the fused kernel wins.
_TILE = 256
_FEWEST_TILED_TOKENS = 128

# From this many sequences on, batched matrix products beat the fused kernel on a CPU.
_FEWEST_BATCHED_SEQUENCES = 4


def sequence_mask(num_new: int, num_seen: int, dtype: torch.dtype, device: torch.device) -> Mask:
    """The causal mask that ``attend_sequence`` wants for these sizes, made once a step.

    None where it needs none; otherwise ``[t, s]``, or one square tile of it where it works in
    tiles: 0 where a token may look and -inf where the position comes after it.
    """
    if num_new == 1:
        return None
    if _in_tiles(num_new, dtype, device):
        side = min(_TILE, num_new)
        return _minus_infinity(side, side, dtype, device).triu_(1)
    if num_new == num_seen:
        return None
    return _minus_infinity(num_new, num_seen, dtype, device).triu_(num_seen - num_new + 1)


def batch_mask(
    lengths: Sequence[int],
    num_seen: int,
    num_kv_heads: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """``[h * b, 1, s]``: 0 where a position belongs to the sequence, -inf at and beyond its end."""
    beyond = torch.arange(num_seen) >= torch.tensor(lengths).unsqueeze(1)
    mask_bs = torch.zeros(beyond.shape).masked_fill_(beyond, -math.inf)
    mask_bs = mask_bs.to(dtype=dtype, device=device)
    return mask_bs.repeat(num_kv_heads, 1).unsqueeze(1)


def attend_sequence(q_thgd: Tensor, keys_hsd: Tensor, values_hsd: Tensor, mask: Mask) -> Tensor:
    """New tokens of one sequence attend to the cache, which holds them last: ``[t, h, g, d]``.

    Token i of t sees the first s - t + i + 1 positions. ``mask`` is that of ``sequence_mask``.
    """
    num_new, _, group, _ = q_thgd.shape
    num_seen = keys_hsd.shape[1]
    if num_new == 1:
        # One token per query head and nothing to hide: the g heads are the rows.
        return scaled_dot_product_attention(q_thgd, keys_hsd[None], values_hsd[None])
    if _in_tiles(num_new, q_thgd.dtype, q_thgd.device):
        if mask is None:
            raise ValueError("attention in tiles needs the mask of one tile")
        return _attend_in_tiles(q_thgd, keys_hsd, values_hsd, mask)
    out_hgtd = scaled_dot_product_attention(
        q_thgd.permute(1, 2, 0, 3),
        keys_hsd.unsqueeze(1).expand(-1, group, -1, -1),
        values_hsd.unsqueeze(1).expand(-1, group, -1, -1),
        attn_mask=mask,
        is_causal=mask is None and num_new == num_seen,
    )
    return out_hgtd.permute(2, 0, 1, 3)


def _attend_in_tiles(
    q_thgd: Tensor, keys_hsd: Tensor, values_hsd: Tensor, tile_mask: Tensor
) -> Tensor:
    num_new, heads, group, dim = q_thgd.shape
    prefix = keys_hsd.shape[1] - num_new
    out_thgd = torch.empty_like(q_thgd, memory_format=torch.contiguous_format)
    for first in range(0, num_new, _TILE):
        last = min(first + _TILE, num_new)
        rows, seen = last - first, prefix + last
        # Row-major over (g, t), so that a KV head is one matrix product for all its query heads.
        queries = q_thgd[first:last].permute(1, 2, 0, 3).reshape(heads, group * rows, dim)
        scores = torch.bmm(queries * dim**-0.5, keys_hsd[:, :seen].transpose(1, 2))
        future = scores.view(heads, group, rows, seen)[..., seen - rows :]
        future.add_(tile_mask[:rows, :rows])
        # softmax computes in float32 inside, whatever the dtype.
        mixed = torch.bmm(scores.softmax(-1), values_hsd[:, :seen])
        out_thgd[first:last] = mixed.view(heads, group, rows, dim).permute(2, 0, 1, 3)
    return out_thgd


def attend_batch(q_bhgd: Tensor, keys_hbsd: Tensor, values_hbsd: Tensor, mask: Tensor) -> Tensor:
    """One new token of each of b sequences attends to its own positions: ``[b, h, g, d]``.

    ``mask`` is that of ``batch_mask``.
    """
    batch, heads, group, dim = q_bhgd.shape
    seen = keys_hbsd.shape[2]
    q_hbgd = q_bhgd.transpose(0, 1)
    if q_bhgd.device.type != "cpu" or batch < _FEWEST_BATCHED_SEQUENCES:
        spread = mask.view(heads, batch, 1, seen).expand(-1, -1, group, -1)
        out = scaled_dot_product_attention(q_hbgd, keys_hbsd, values_hbsd, attn_mask=spread)
        return out.transpose(0, 1)
    scores = torch.baddbmm(
        mask,
        q_hbgd.reshape(heads * batch, group, dim),
        keys_hbsd.view(heads * batch, seen, dim).transpose(1, 2),
        alpha=dim**-0.5,
    )
    mixed = torch.bmm(scores.softmax(-1), values_hbsd.view(heads * batch, seen, dim))
    return mixed.view(heads, batch, group, dim).transpose(0, 1)


def _in_tiles(num_new: int, dtype: torch.dtype, device: torch.device) -> bool:
    return device.type == "cpu" and dtype is torch.bfloat16 and num_new >= _FEWEST_TILED_TOKENS


def _minus_infinity(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((rows, columns), -math.inf, dtype=dtype, device=device)
