"""Our dequantisation is the ``gguf`` package's, bit for bit."""

from __future__ import annotations

import sys

import gguf
import numpy as np
import pytest

from engine.errors import UnsupportedModel
from engine.inference.weights.dequantize import dequantize
from engine.inference.weights.ggml_types import BY_GGML_ID, BY_NAME

NATIVE = [storage for storage in BY_GGML_ID.values() if storage.native]


def random_blocks(storage, count: int, seed: int = 0) -> np.ndarray:
    """Random bytes, with each 16-bit scale replaced by a finite one, small and negative too."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (count, storage.block_bytes), dtype=np.uint8)
    if storage.name == "F32":
        return random.standard_normal((count, 1), dtype=np.float32).view(np.uint8)
    if storage.name == "BF16":
        wide = random.standard_normal((count, 1), dtype=np.float32).view(np.uint32)
        return (wide >> 16).astype(np.uint16).view(np.uint8)
    scales = random.standard_normal((count, 2)).astype(np.float16) * np.float16(2**-4)
    scales[: count // 8] = np.float16(6e-8)  # subnormal
    places = {"Q6_K": -2, "Q3_K": -2, "Q2_K": -4}
    start = places.get(storage.name, 0) % storage.block_bytes
    width = 4 if storage.name in ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K") else 2
    blocks[:, start : start + width] = scales.view(np.uint8)[:, :width]
    return blocks


@pytest.mark.parametrize("storage", BY_GGML_ID.values(), ids=lambda s: s.name)
def test_every_type_is_bit_identical_to_the_package(storage):
    blocks = random_blocks(storage, 4 * 257)
    shape = (4, 257 * storage.block_elements)
    ours = dequantize(blocks.reshape(-1), storage, shape)
    kind = gguf.GGMLQuantizationType(storage.ggml_id)
    theirs = gguf.quants.dequantize(blocks.reshape(4, -1), kind)
    assert ours.shape == shape
    assert ours.dtype == np.float32
    assert ours.flags.writeable
    assert ours.flags.c_contiguous
    np.testing.assert_array_equal(ours.view(np.uint32), theirs.reshape(shape).view(np.uint32))


@pytest.mark.parametrize("storage", BY_GGML_ID.values(), ids=lambda s: s.name)
def test_sizes_are_those_of_ggml(storage):
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(storage.ggml_id)] == (
        storage.block_elements,
        storage.block_bytes,
    )
    assert gguf.GGMLQuantizationType(storage.ggml_id).name == storage.name


def test_bits_per_element_count_the_scales():
    assert BY_NAME["Q4_1"].bits_per_element == 5.0
    assert BY_NAME["Q8_0"].bits_per_element == 8.5
    assert BY_NAME["BF16"].bits_per_element == 16.0


@pytest.mark.parametrize("storage", NATIVE, ids=lambda s: s.name)
def test_read_only_input_stays_untouched(storage):
    blocks = random_blocks(storage, 64)
    before = blocks.copy()
    blocks.flags.writeable = False
    values = dequantize(blocks.reshape(-1), storage, (64 * storage.block_elements,))
    values[:] = 0
    np.testing.assert_array_equal(blocks, before)


@pytest.mark.parametrize("storage", NATIVE, ids=lambda s: s.name)
def test_any_bytes_give_numbers_without_a_warning(storage):
    """Infinite and undefined scales come out as such; they are the file's, not an accident."""
    blocks = np.random.default_rng(3).integers(0, 256, (5_000, storage.block_bytes), np.uint8)
    blocks[:100, :4] = 0xFF
    blocks[100:200, :4] = np.frombuffer(b"\x00\x7c\x01\x7c", np.uint8)[: storage.block_bytes]
    dequantize(blocks.reshape(-1), storage, (blocks.shape[0] * storage.block_elements,))


def test_without_the_package_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    q5_k = BY_NAME["Q5_K"]
    with pytest.raises(UnsupportedModel, match="Q5_K need the package 'gguf'"):
        dequantize(np.zeros(q5_k.block_bytes, np.uint8), q5_k, (256,))
    q4_1 = BY_NAME["Q4_1"]
    assert dequantize(np.zeros(20, np.uint8), q4_1, (32,)).tolist() == [0.0] * 32
