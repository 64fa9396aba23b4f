"""Layers on packed weights give what the expanded weights give."""

from __future__ import annotations

import pytest
import torch

from engine.inference.quantization.linear import QuantizedEmbedding, QuantizedLinear
from engine.inference.quantization.packed import pack
from tests.engine.inference.quantization.test_packed import BITS, quantized


@pytest.mark.parametrize("scheme", BITS)
@pytest.mark.parametrize("tokens", [1, 7])
def test_packed_is_dequantised_and_multiplied(scheme: str, tokens: int) -> None:
    tensor = quantized(scheme, rows=1_000)  # more than are expanded at once
    x = torch.randn(tokens, 576)
    bias = torch.randn(1_000)
    expected = x @ tensor.dequantize().T + bias
    layer = QuantizedLinear(pack(tensor), torch.float32, bias)
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-4)
    assert layer.nbytes == pack(tensor).nbytes + 4 * 1_000


def test_in_bfloat16_the_weights_are_rounded_as_a_file_in_bfloat16_is() -> None:
    tensor = quantized("int4", rows=1_000)
    x = torch.randn(3, 576).bfloat16()
    expected = torch.nn.functional.linear(x, tensor.dequantize().bfloat16())
    got = QuantizedLinear(pack(tensor), torch.bfloat16)(x)
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-1)


def test_a_tied_table_is_held_once() -> None:
    packed = pack(quantized("int8-channel"))
    head = QuantizedLinear(packed, torch.float32)
    embedding = QuantizedEmbedding(packed, torch.float32)
    assert head.shares_memory_with(embedding.storage)
    assert not head.shares_memory_with(torch.empty(1))
    ids = torch.tensor([5, 0, 5])
    assert torch.equal(embedding(ids), packed.unpack().dequantize()[ids])
    assert embedding.nbytes == packed.nbytes
