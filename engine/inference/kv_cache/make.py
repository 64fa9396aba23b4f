"""From settings to a KV cache."""

from __future__ import annotations

import torch

from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.kv_cache.plain import PlainStore
from engine.inference.kv_cache.store import StoreShape
from engine.inference.kv_cache.vocabulary import KEYS_AND_VALUES
from engine.inference.lane_settings import KVSettings
from engine.inference.model.config import ModelConfig
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE


def kv_bytes_per_token(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes that one position takes in all layers: 2 · layers · kv_heads · head_dim · itemsize."""
    return KEYS_AND_VALUES * config.num_layers * config.kv_size * dtype.itemsize


def blocks_in_budget(
    num_bytes: int,
    config: ModelConfig,
    dtype: torch.dtype,
    block_size: int = DEFAULT_BLOCK_SIZE,
) -> int:
    """Whole blocks that fit into ``num_bytes``; may be 0."""
    return num_bytes // (kv_bytes_per_token(config, dtype) * block_size)


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

    Raises:
        ValueError: no blocks.
    """
    shape = StoreShape(
        config.num_layers,
        config.num_kv_heads,
        config.head_dim,
        num_blocks * block_size,
        block_size,
    )
    return PagedKVCache(
        PlainStore(shape, dtype, device), settings, block_size=block_size, dtype=dtype
    )
