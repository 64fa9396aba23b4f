"""Rounding to nearest: no weight further than half a step from its level, whatever the scheme."""

from __future__ import annotations

import pytest
import torch

from engine.errors import UnsupportedModel
from engine.inference.lane_settings import parse_weights
from engine.inference.quantization.rtn import fit_grid, group_size_of, round_to_nearest

SCHEMES = [
    f"{bits}-{shared}"
    for bits in ("int8", "int4")
    for shared in ("tensor", "channel", "g32", "g64", "g128")
]


def weights(rows: int = 48, columns: int = 576, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("shift", [0.0, 5.0, -0.3])
def test_no_weight_is_further_than_half_a_step_away(scheme: str, size: float, shift: float) -> None:
    weight = (weights() + shift) * size
    tensor = round_to_nearest(weight, parse_weights(scheme))
    errors = (weight - tensor.dequantize()).abs().view(48, -1, tensor.group_size)
    # Float32 computes the difference of numbers far from zero to 24 bits.
    slack = 4e-7 * float(weight.abs().max())
    assert (errors <= tensor.scales_oq.unsqueeze(-1) * 0.5 + slack).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_levels_and_scales_are_what_can_be_stored(scheme: str) -> None:
    tensor = round_to_nearest(weights(), parse_weights(scheme))
    low, high = (0, 15) if tensor.bits == 4 else (-127, 127)
    assert tensor.levels_oi.dtype is torch.int8
    assert low <= int(tensor.levels_oi.min()) <= int(tensor.levels_oi.max()) <= high
    assert torch.equal(tensor.scales_oq.half().float(), tensor.scales_oq)
    if tensor.offsets_oq is not None:
        assert torch.equal(tensor.offsets_oq.half().float(), tensor.offsets_oq)


def test_who_shares_a_scale() -> None:
    weight = weights()
    per_tensor = round_to_nearest(weight, parse_weights("int8-tensor")).scales_oq
    assert per_tensor.unique().numel() == 1
    assert float(per_tensor[0, 0]) == pytest.approx(float(weight.abs().max()) / 127, rel=1e-3)
    per_channel = round_to_nearest(weight, parse_weights("int8-channel")).scales_oq
    torch.testing.assert_close(per_channel[:, 0], weight.abs().amax(1) / 127, rtol=1e-3, atol=0)
    per_group = round_to_nearest(weight, parse_weights("int4-g64"))
    groups = weight.view(48, 9, 64)
    spans = groups.amax(-1) - groups.amin(-1)
    torch.testing.assert_close(per_group.scales_oq, spans / 15, rtol=2e-3, atol=0)


@pytest.mark.parametrize(
    ("name", "columns", "size"),
    [
        ("int4-g128", 1_536, 128),
        ("int4-g128", 576, 96),
        ("int4-g64", 160, 32),
        ("int4-g32", 40, 40),
        ("int4-channel", 576, 576),
        ("int4-tensor", 576, 576),
    ],
)
def test_groups_divide_the_row(name: str, columns: int, size: int) -> None:
    assert group_size_of(parse_weights(name), columns) == size


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_was_rounded_once_stays(scheme: str) -> None:
    settings = parse_weights(scheme)
    once = round_to_nearest(weights(), settings)
    twice = round_to_nearest(once.dequantize(), settings)
    assert torch.equal(twice.levels_oi, once.levels_oi)


def test_equal_weights_and_zeros_are_exact() -> None:
    for scheme in SCHEMES:
        zeros = round_to_nearest(torch.zeros(2, 128), parse_weights(scheme))
        assert not zeros.dequantize().any()
    halves = torch.full((2, 128), 0.5)
    assert torch.equal(round_to_nearest(halves, parse_weights("int4")).dequantize(), halves)


def test_an_asymmetric_grid_of_four_bits_beats_a_symmetric_one() -> None:
    weight = weights()
    groups = weight.view(48, -1, 32)
    scale = groups.abs().amax(-1, keepdim=True) / 7
    symmetric = ((groups / scale).round() * scale).view(48, 576)
    ours = round_to_nearest(weight, parse_weights("int4")).dequantize()
    assert (weight - ours).square().mean() < 0.8 * (weight - symmetric).square().mean()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e5])
def test_what_no_scale_can_hold_is_refused(value: float) -> None:
    weight = weights()
    weight[3, 5] = value
    for scheme in ("int8", "int4"):
        with pytest.raises(UnsupportedModel):
            fit_grid(weight, parse_weights(scheme))


def test_float_formats_have_no_grid() -> None:
    with pytest.raises(ValueError, match="int8 and int4"):
        fit_grid(weights(), parse_weights("bfloat16"))
