"""Packed storage: what is claimed is what lies in memory, and nothing is lost on the way."""

from __future__ import annotations

import pytest
import torch

from engine.inference.lane_settings import parse_weights
from engine.inference.quantization.packed import join_rows, pack, packed_bytes, select_rows
from engine.inference.quantization.rtn import round_to_nearest
from engine.inference.quantization.tensor import QuantizedTensor

# Levels, and 16 bits for a scale (and 16 for an offset, with 4 bits) a group.
BITS = {
    "int8-tensor": 8 + 16 / 576,
    "int8-channel": 8 + 16 / 576,
    "int8-g32": 8 + 16 / 32,
    "int8-g64": 8 + 16 / 64,
    "int8-g128": 8 + 16 / 96,
    "int4-tensor": 4 + 32 / 576,
    "int4-channel": 4 + 32 / 576,
    "int4-g32": 4 + 32 / 32,
    "int4-g64": 4 + 32 / 64,
    "int4-g128": 4 + 32 / 96,
}


def quantized(scheme: str, rows: int = 40, columns: int = 576, seed: int = 0) -> QuantizedTensor:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator)
    return round_to_nearest(weight, parse_weights(scheme))


def same(one: QuantizedTensor, other: QuantizedTensor) -> bool:
    offsets = (one.offsets_oq, other.offsets_oq)
    return (
        (one.bits, one.group_size) == (other.bits, other.group_size)
        and torch.equal(one.levels_oi, other.levels_oi)
        and torch.equal(one.scales_oq, other.scales_oq)
        and (
            torch.equal(offsets[0], offsets[1])
            if offsets[0] is not None and offsets[1] is not None
            else offsets == (None, None)
        )
    )


@pytest.mark.parametrize("scheme", BITS)
def test_bits_and_bytes_of_every_scheme(scheme: str) -> None:
    packed = pack(quantized(scheme))
    assert packed.bits_per_weight == pytest.approx(BITS[scheme])
    assert packed.nbytes == round(40 * 576 * BITS[scheme] / 8) == packed_bytes(quantized(scheme))
    parts = [packed.levels, packed.scales_oq, packed.offsets_oq]
    taken = sum(part.untyped_storage().nbytes() for part in parts if part is not None)
    assert taken == packed.nbytes


@pytest.mark.parametrize("scheme", BITS)
def test_packing_loses_nothing(scheme: str) -> None:
    tensor = quantized(scheme)
    packed = pack(tensor)
    assert packed.shape == tensor.shape
    assert same(packed.unpack(), tensor)
    assert torch.equal(packed.rows(slice(None)), tensor.dequantize())
    assert torch.equal(packed.rows(slice(7, 20)), tensor.dequantize()[7:20])
    which = torch.tensor([3, 3, 39, 0])
    assert torch.equal(packed.rows(which), tensor.dequantize()[which])


def test_a_symmetric_matrix_of_four_bits_has_its_zero_at_eight() -> None:
    levels = torch.tensor([[0, 8, 15, 7]], dtype=torch.int8)
    tensor = QuantizedTensor(4, 4, levels, torch.tensor([[0.5]]))
    expected = torch.tensor([[-4.0, 0.0, 3.5, -0.5]])
    assert torch.equal(tensor.dequantize(), expected)
    assert torch.equal(pack(tensor).rows(slice(None)), expected)
    assert pack(tensor).nbytes == 2 + 2


def test_rows_are_joined_and_reordered() -> None:
    parts = [quantized("int4", seed=seed) for seed in range(3)]
    expected = torch.cat([part.dequantize() for part in parts])
    joined = join_rows(parts)
    assert torch.equal(joined.dequantize(), expected)
    order = torch.randperm(120)
    assert torch.equal(select_rows(joined, order).dequantize(), expected[order])


def test_formats_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="different formats"):
        join_rows([quantized("int4"), quantized("int8")])
    with pytest.raises(ValueError, match="different formats"):
        join_rows([quantized("int4-g32"), quantized("int4-g64")])


def test_odd_rows_do_not_fill_bytes() -> None:
    with pytest.raises(ValueError, match="even"):
        pack(quantized("int4-channel", columns=33))
