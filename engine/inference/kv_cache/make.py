"""From settings to a KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.inference.kv_cache.contiguous import ContiguousKVCache
from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.kv_cache.plain import PlainStore
from engine.inference.kv_cache.quantized import Int4Store, Int8Store
from engine.inference.kv_cache.store import StoreShape
from engine.inference.kv_cache.vocabulary import KEYS_AND_VALUES
from engine.inference.lane_settings import KVFormat, KVLayout, KVSettings
from engine.inference.model.config import ModelConfig
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE, blocks_for

_SCALE_BYTES = torch.float16.itemsize


def kv_bytes_per_token(
    config: ModelConfig, dtype: torch.dtype, stored: KVFormat = KVFormat.SAME
) -> int:
    """Bytes that one position takes in all layers, scales included: 2 · layers · kv_heads times
    head_dim numbers and, if quantised, a scale."""
    bits = {KVFormat.SAME: 8 * dtype.itemsize, KVFormat.INT8: 8, KVFormat.INT4: 4}[stored]
    scale = 0 if stored is KVFormat.SAME else _SCALE_BYTES
    heads = KEYS_AND_VALUES * config.num_layers * config.num_kv_heads
    return heads * (config.head_dim * bits // 8 + scale)


@dataclass(frozen=True, slots=True)
class CacheSize:
    """``num_blocks`` blocks of ``block_size`` positions."""

    num_blocks: int
    block_size: int


def size_in_budget(
    num_bytes: int,
    config: ModelConfig,
    settings: KVSettings,
    dtype: torch.dtype,
    *,
    longest: int,
) -> CacheSize:
    """The cache that fits into ``num_bytes``; ``num_blocks`` may be 0.

    ``longest``: positions that a sequence can have; a slab of a contiguous cache is that long,
    rounded up to whole pages.
    """
    block_size = DEFAULT_BLOCK_SIZE
    if settings.layout is KVLayout.CONTIGUOUS:
        block_size *= blocks_for(longest, DEFAULT_BLOCK_SIZE)
    block_bytes = kv_bytes_per_token(config, dtype, settings.format) * block_size
    return CacheSize(num_bytes // block_bytes, block_size)


def make_cache(
    config: ModelConfig,
    settings: KVSettings,
    *,
    num_blocks: int,
    dtype: torch.dtype,
    device: torch.device,
    block_size: int = DEFAULT_BLOCK_SIZE,
) -> PagedKVCache:
    """A KV cache of ``num_blocks`` blocks of ``block_size`` positions for activations of ``dtype``.

    The blocks of a contiguous cache are its slabs. A cache that is off is paged memory for the
    positions of one step.

    Raises:
        ValueError: no blocks, or slabs that are not whole pages.
    """
    contiguous = settings.layout is KVLayout.CONTIGUOUS
    page_size = min(block_size, DEFAULT_BLOCK_SIZE) if contiguous else block_size
    shape = StoreShape(
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        num_slots=num_blocks * block_size,
        page_size=page_size,
    )
    store = _STORES[settings.format](shape, dtype, device)
    layout = ContiguousKVCache if contiguous else PagedKVCache
    return layout(store, settings, block_size=block_size, dtype=dtype)


_STORES: dict[KVFormat, type[PlainStore] | type[Int8Store] | type[Int4Store]] = {
    KVFormat.SAME: PlainStore,
    KVFormat.INT8: Int8Store,
    KVFormat.INT4: Int4Store,
}
