"""Sizes of caches, what each variant can do, and what can be given back of a windowed one."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.inference.kv_cache.capabilities import CacheCapabilities
from engine.inference.kv_cache.contiguous import ContiguousKVCache
from engine.inference.kv_cache.make import kv_bytes_per_token, make_cache, size_in_budget
from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.lane_settings import KVFormat, KVSettings, parse_kv
from tests.engine.inference.runs_for_tests import CPU, tiny


def _cache(name: str, num_blocks: int = 6, block_size: int = 16) -> PagedKVCache:
    return make_cache(
        tiny().config,
        parse_kv(name),
        num_blocks=num_blocks,
        dtype=torch.float32,
        device=CPU,
        block_size=block_size,
    )


HEADS = 2 * 2 * 2  # keys and values, 2 layers, 2 KV heads: of 16 numbers each


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("paged", HEADS * 16 * 4),
        ("contiguous", HEADS * 16 * 4),
        ("paged-int8", HEADS * (16 + 2)),
        ("paged-int4", HEADS * (8 + 2)),
        ("contiguous-int4-window-8", HEADS * (8 + 2)),
    ],
)
def test_bytes_of_a_token_are_those_of_its_memory(name: str, expected: int) -> None:
    cache = _cache(name)
    assert cache.bytes_per_token == expected
    assert cache.nbytes == expected * 6 * 16
    assert cache.nbytes == sum(p.nbytes for layer in cache.store.planes for p in layer)
    stored = parse_kv(name).format
    assert kv_bytes_per_token(tiny().config, torch.float32, stored) == expected


def test_bytes_of_a_token_in_the_dtype_of_the_activations() -> None:
    config = tiny().config
    assert kv_bytes_per_token(config, torch.bfloat16) == HEADS * 16 * 2
    assert kv_bytes_per_token(config, torch.bfloat16, KVFormat.INT8) == HEADS * 18


def test_off_keeps_nothing_and_still_takes_memory() -> None:
    cache = _cache("off")
    assert cache.bytes_per_token == 0
    assert cache.nbytes == HEADS * 16 * 4 * 6 * 16


def test_blocks_and_slabs_that_fit_into_a_budget() -> None:
    config = tiny().config

    def size(name: str, num_bytes: int, longest: int = 100) -> tuple[int, int]:
        return dataclasses.astuple(
            size_in_budget(num_bytes, config, parse_kv(name), torch.float32, longest=longest)
        )

    assert size("paged", 100_000) == (100_000 // (512 * 16), 16)
    assert size("paged-int8", 100_000) == (100_000 // (144 * 16), 16)
    assert size("paged", 100) == (0, 16)
    assert size("contiguous", 1_000_000) == (1_000_000 // (512 * 112), 112)
    assert size("contiguous-int4", 1_000_000, longest=96) == (1_000_000 // (80 * 96), 96)


def test_a_cache_of_no_blocks_or_odd_slabs_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        _cache("paged", num_blocks=0)
    with pytest.raises(ValueError, match="whole pages"):
        _cache("contiguous", num_blocks=3, block_size=40)
    assert isinstance(_cache("contiguous", block_size=48), ContiguousKVCache)


def test_capabilities() -> None:
    def can(name: str) -> tuple[bool, ...]:
        found = _cache(name).capabilities
        assert found == CacheCapabilities.of(parse_kv(name))
        return found.keeps_computed, found.shares_blocks, found.sees_everything, found.exact

    assert can("paged") == (True, True, True, True)
    assert can("contiguous") == (True, False, True, True)
    assert can("off") == (False, False, True, True)
    assert can("paged-int8") == (True, True, True, False)
    assert can("paged-window-64-sinks-4") == (True, True, False, True)


@pytest.mark.parametrize(("name", "reason"), [("contiguous", "slab"), ("off", "nothing is kept")])
def test_sharing_is_refused_where_nothing_can_be_shared(name: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=f"prefix caching needs.*{reason}") as refusal:
        CacheCapabilities.of(parse_kv(name)).require_shared_blocks("prefix_cache")
    assert refusal.value.field == "kv_cache"
    CacheCapabilities.of(parse_kv("paged-int4")).require_shared_blocks("prefix_cache")


@given(
    st.integers(2, 60), st.integers(0, 20), st.integers(0, 200), st.integers(1, 20),
)  # fmt: skip
def test_forgotten_blocks_are_exactly_those_that_nobody_reads_again(
    window: int, sinks: int, position: int, block_size: int
) -> None:
    settings = KVSettings(window=window, sinks=min(sinks, window - 1))
    forgotten = settings.forgotten_blocks(position, block_size)
    for block in range(position // block_size + 1):
        read = any(
            j < settings.sinks or position - j < window
            for j in range(block * block_size, (block + 1) * block_size)
        )
        assert (block in forgotten) == (not read)


def test_without_a_window_nothing_is_forgotten() -> None:
    assert not KVSettings().forgotten_blocks(100_000, 16)
