"""A file's own blocks: bit for bit what the ``gguf`` package expands them to."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from engine.errors import InvalidRequest
from engine.inference.quantization.file_blocks import from_file_blocks
from engine.inference.quantization.packed import pack
from engine.inference.weights.checkpoint import RawTensor
from engine.inference.weights.ggml_types import BY_NAME

ROWS, COLUMNS = 6, 96


def raw(name: str, columns: int = COLUMNS) -> RawTensor:
    kind = gguf.GGMLQuantizationType[name]
    weights = np.random.default_rng(0).standard_normal((ROWS, columns), dtype=np.float32)
    blocks = gguf.quants.quantize(weights, kind)
    return RawTensor(BY_NAME[name], blocks.view(np.uint8).reshape(ROWS, -1), (ROWS, columns))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
def test_bit_identical_to_the_dequantised_file(name: str) -> None:
    stored = raw(name)
    kind = gguf.GGMLQuantizationType[name]
    # A zero's sign is the one bit that may differ: (8 - 8) · scale is -0 for a negative scale.
    expected = (gguf.quants.dequantize(stored.blocks, kind) + 0.0).view(np.uint32)
    tensor = from_file_blocks(stored)
    assert tensor.group_size == 32
    for weights in (tensor.dequantize(), pack(tensor).rows(slice(None))):
        np.testing.assert_array_equal((weights.numpy() + 0.0).view(np.uint32), expected)


@pytest.mark.parametrize(("name", "bits"), [("Q4_0", 4.5), ("Q4_1", 5.0), ("Q8_0", 8.5)])
def test_not_a_bit_is_added(name: str, bits: float) -> None:
    packed = pack(from_file_blocks(raw(name)))
    assert packed.bits_per_weight == bits == BY_NAME[name].bits_per_element
    assert packed.nbytes == raw(name).blocks.nbytes


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q5_0"])
def test_other_types_are_refused_with_their_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        from_file_blocks(raw(name))
    assert caught.value.field == "weights"


def test_levels_are_a_copy_that_torch_may_own() -> None:
    stored = raw("Q8_0")
    blocks = stored.blocks.copy()
    blocks.flags.writeable = False
    tensor = from_file_blocks(stored._replace(blocks=blocks))
    assert tensor.levels_oi.dtype is torch.int8
    before = blocks.copy()
    tensor.levels_oi.zero_()
    np.testing.assert_array_equal(blocks, before)
