"""INT8 and INT4: errors within bounds, packed bytes as documented, nothing hidden in scales."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.inference.kv_cache.make import make_cache
from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.kv_cache.quantized import hadamard_matrix
from engine.inference.kv_cache.vocabulary import CachedKV
from engine.inference.lane_settings import parse_kv
from tests.engine.inference.runs_for_tests import CPU, tiny

pytestmark = pytest.mark.usefixtures("one_thread")

HEADS, DIM, BLOCK = 2, 16, 4
FORMATS = ["int8", "int4"]
# Where float16 runs out of exponents, a scale is off by up to 2**-25.
SUBNORMAL = 127 * 2.0**-25


def _cache(stored: str, dtype: torch.dtype = torch.float32) -> PagedKVCache:
    return make_cache(
        tiny().config,
        parse_kv(f"paged-{stored}"),
        num_blocks=6,
        dtype=dtype,
        device=CPU,
        block_size=BLOCK,
    )


def _written(cache: PagedKVCache, kv_tphd: Tensor) -> tuple[Tensor, Tensor]:
    """Write to layer 1 and read it: numbers ``[t, p, h, d]`` and scales ``[t, p, h, 1]``."""
    num_tokens = kv_tphd.shape[0]
    cache.write(1, kv_tphd, slice(0, num_tokens))
    kv = cache.read(1, cache.locate(range(6), [range(num_tokens)]))
    assert kv.key_scales is not None
    assert kv.value_scales is not None
    scales = torch.stack([kv.key_scales, kv.value_scales]).permute(2, 0, 1).unsqueeze(3)
    plain = kv.with_scales_applied()
    return torch.stack([plain.keys, plain.values]).permute(2, 0, 1, 3), scales


def _parts(kv: CachedKV) -> list[Tensor]:
    parts = [part for part in kv if part is not None]
    assert len(parts) == 4
    return parts


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.integers(0, 2**31),
    st.floats(-7, 2),
    st.sampled_from(["normal", "one outlier", "zeros", "two ends", "same"]),
)
def test_no_number_is_off_by_more_than_half_a_scale(
    stored: str, seed: int, exponent: float, kind: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    kv = torch.randn(7, 2, HEADS, DIM, generator=generator)
    if kind == "one outlier":
        kv[..., 3] *= 100
    elif kind == "zeros":
        kv[::2] = 0
    elif kind == "two ends":
        kv = kv.sign()
    elif kind == "same":
        kv = kv[..., :1].expand(-1, -1, -1, DIM)
    kv = kv * 10.0**exponent
    cache = _cache(stored)
    found, scales = _written(cache, kv)
    expected = kv if cache.basis is None else kv @ cache.basis
    # Of 16 levels 8 are below zero and 7 above: a number at the short end loses a whole one, and
    # a little more where its scale was rounded down.
    short_end = (expected / scales > 7.5) if stored == "int4" else torch.tensor(False)
    bound = scales.abs() * torch.where(short_end, 1.0, 0.5)
    assert ((found - expected).abs() <= bound * (1 + 2**-8) + SUBNORMAL).all()


@pytest.mark.parametrize("stored", FORMATS)
def test_levels_and_scales_are_used_to_the_full(stored: str) -> None:
    kv = torch.randn(20, 2, HEADS, DIM, generator=torch.Generator().manual_seed(1))
    cache = _cache(stored)
    _, scales = _written(cache, kv)
    in_basis = kv if cache.basis is None else kv @ cache.basis
    largest = in_basis.abs().amax(-1, keepdim=True)
    most = {"int8": 127, "int4": 8}[stored]
    torch.testing.assert_close(scales.abs(), largest / most, rtol=2e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stored", FORMATS)
def test_levels_are_read_exactly_in_every_dtype(stored: str, dtype: torch.dtype) -> None:
    cache = _cache(stored, dtype)
    kv = torch.randn(24, 2, HEADS, DIM, generator=torch.Generator().manual_seed(2)).to(dtype)
    cache.write(0, kv, slice(0, 24))
    for found in (
        cache.read(0, cache.locate(range(6), [range(24)])),
        cache.read(0, cache.locate([1, 0, 3, 2, 5, 4], [range(24)])),
    ):
        assert found.keys.dtype == dtype
        assert torch.equal(found.keys, found.keys.round())
        lowest, highest = {"int8": (-127, 127), "int4": (-8, 7)}[stored]
        assert found.keys.min() >= lowest
        assert found.keys.max() <= highest


@pytest.mark.parametrize("stored", FORMATS)
def test_scattered_reads_give_the_numbers_of_a_run(stored: str) -> None:
    cache = _cache(stored)
    kv = torch.randn(24, 2, HEADS, DIM, generator=torch.Generator().manual_seed(3))
    cache.write(0, kv, slice(0, 24))
    run = [part.clone() for part in _parts(cache.read(0, cache.locate(range(6), [range(24)])))]
    order = [4, 1, 5, 0, 2, 3]
    slots = [block * BLOCK + i for block in order for i in range(BLOCK)]
    scattered = _parts(cache.read(0, cache.locate(order, [range(22)])))
    for whole, part in zip(run, scattered, strict=True):
        assert torch.equal(part, whole[:, slots[:22]])
    pages = cache.locate_batch([order, [2]], [[range(22)], [range(3)]])
    batch = _parts(cache.read_batch(0, pages))
    for whole, part in zip(run, batch, strict=True):
        first = part.view(HEADS, 2, 24, *part.shape[2:])[:, 0]
        assert torch.equal(first, whole[:, slots])


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e9])
def test_numbers_that_have_no_scale_are_found_and_cleared(stored: str, number: float) -> None:
    cache = _cache(stored)
    kv = torch.randn(24, 2, HEADS, DIM, generator=torch.Generator().manual_seed(4))
    cache.write(0, kv, slice(0, 24))
    kv[9, 1, 0, 5] = number
    cache.write(1, kv, slice(0, 24))
    assert cache.not_finite(range(6)) == [2]
    read = cache.read(1, cache.locate(range(6), [range(24)])).with_scales_applied()
    assert not read.values[:, 9].isfinite().all()
    cache.zero([2])
    assert cache.not_finite(range(6)) == []
    read = cache.read(1, cache.locate(range(6), [range(24)])).with_scales_applied()
    assert not read.values[:, 8:12].any()
    assert read.values[:, [7, 12]].any()


@pytest.mark.parametrize("stored", FORMATS)
def test_a_copied_block_takes_its_scales_along(stored: str) -> None:
    cache = _cache(stored)
    kv = torch.randn(24, 2, HEADS, DIM, generator=torch.Generator().manual_seed(5))
    kv *= torch.arange(1, 25).view(-1, 1, 1, 1)
    cache.write(0, kv, slice(0, 24))
    cache.copy_blocks([(1, 4)])
    read = cache.read(0, cache.locate(range(6), [range(24)])).with_scales_applied()
    assert torch.equal(read.keys[:, 16:20], read.keys[:, 4:8])
    assert torch.equal(read.values[:, 16:20], read.values[:, 4:8])


@pytest.mark.parametrize("size", [2, 6, 16, 24, 64, 80, 96, 128])
def test_the_basis_is_orthogonal_symmetric_and_mixes(size: int) -> None:
    matrix = hadamard_matrix(size)
    torch.testing.assert_close(matrix @ matrix, torch.eye(size))
    assert torch.equal(matrix, matrix.T)
    block = size & -size
    assert (matrix != 0).sum(1).eq(block).all()


def test_the_rotation_takes_the_sting_out_of_an_outlier() -> None:
    kv = torch.randn(20, 2, HEADS, DIM, generator=torch.Generator().manual_seed(6))
    kv[..., 7] *= 20
    cache = _cache("int4")
    found, _ = _written(cache, kv)
    assert cache.basis is not None
    error = (found @ cache.basis - kv).square().mean()
    step = kv.abs().amax(-1, keepdim=True) / 7
    unrotated = ((kv / step).round() * step - kv).square().mean()
    assert error < 0.5 * unrotated


# ── the memory as native code sees it ────────────────────────────────────────────────────────


def _bytes_at(address: int, count: int) -> np.ndarray:
    return np.frombuffer(ctypes.string_at(address, count), dtype=np.uint8)


@pytest.mark.parametrize("name", ["paged", "paged-int8", "paged-int4", "contiguous-int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_is_laid_out_as_documented(name: str, dtype: torch.dtype) -> None:
    cache = make_cache(
        tiny().config, parse_kv(name), num_blocks=3, dtype=dtype, device=CPU, block_size=32
    )
    kv = torch.randn(50, 2, HEADS, DIM, generator=torch.Generator().manual_seed(7)).to(dtype)
    slots = torch.randperm(96, generator=torch.Generator().manual_seed(8))[:50]
    cache.write(1, kv, slots)
    view = cache.native_view()
    assert view.num_slots == 96
    expected = kv.float() if cache.basis is None else kv.float() @ hadamard_matrix(DIM)
    for token, kind, head in [(0, 0, 0), (13, 1, 0), (49, 0, 1), (31, 1, 1)]:
        slot = int(slots[token])
        address = view.data[1] + kind * view.kind_stride + head * view.head_stride
        raw = _bytes_at(address + slot * view.slot_stride, view.slot_stride)
        number = expected[token, kind, head].numpy()
        if not view.scales:
            stored = torch.from_numpy(raw.copy()).view(getattr(torch, view.format)).float()
            np.testing.assert_array_equal(stored.numpy(), number)
            continue
        offset = 2 * ((kind * HEADS + head) * view.num_slots + slot)
        scale = float(_bytes_at(view.scales[1] + offset, 2).view(np.float16)[0])
        if view.format == "int8":
            levels = raw.view(np.int8).astype(int)
        else:
            signed = [[((b >> s) & 15 ^ 8) - 8 for b in raw.tolist()] for s in (0, 4)]
            levels = np.array(signed[0] + signed[1])
        assert np.abs(levels * scale - number).max() <= abs(scale) * 1.001
