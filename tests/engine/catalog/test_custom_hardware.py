"""Devices described by a person: units, sparse rates, and values that no device has."""

from __future__ import annotations

from typing import Any

import pytest

from engine.catalog.custom_hardware import dense_if_sparse, read_custom_hardware
from engine.catalog.hardware import get_hardware, published_hardware
from engine.errors import EngineError, InvalidRequest, UnsupportedModel


def _device(**changes: Any) -> dict[str, Any]:
    usual = {"memory_gb": 24, "bandwidth_gb_s": 1000, "dense_tflops": {"bf16": 100}}
    return {key: value for key, value in {**usual, **changes}.items() if value is not None}


def test_a_device_has_the_figures_given() -> None:
    spec = read_custom_hardware(
        _device(
            name="My card",
            dense_tflops={"bf16": 111, "fp8": 217},
            interconnect={"type": "NVLink4", "unidirectional_gb_s": 450},
            tdp_w=350,
            usd_per_hour=1.25,
        )
    )
    assert (spec.id, spec.name, spec.kind) == ("custom", "My card", "custom")
    assert spec.memory_bytes == 24_000_000_000
    assert spec.bandwidth == 1e12
    assert spec.dense_flops == {"bf16": 111e12, "fp8": 217e12}
    assert spec.interconnect is not None
    assert (spec.interconnect.type, spec.interconnect.bandwidth) == ("NVLink4", 450e9)
    assert spec.tdp == 350
    assert spec.price is not None
    assert spec.price.low == spec.price.high == 1.25


def test_gb_and_gib_are_two_units() -> None:
    decimal = read_custom_hardware(_device())
    binary = read_custom_hardware(_device(memory_gb=None, memory_gib=24))
    assert decimal.memory_bytes == 24 * 10**9
    assert binary.memory_bytes == 24 * 2**30
    fast = read_custom_hardware(_device(bandwidth_gb_s=None, bandwidth_gib_s=1000))
    assert fast.bandwidth == 1000 * 2**30
    for both in (_device(memory_gib=24), _device(memory_gb=None)):
        with pytest.raises(InvalidRequest) as caught:
            read_custom_hardware(both)
        assert caught.value.field == "hardware.custom.memory_gb"


def test_a_link_given_for_both_directions_is_halved() -> None:
    link = {"type": "NVLink4", "bidirectional_gb_s": 900}
    spec = read_custom_hardware(_device(interconnect=link))
    assert spec.interconnect is not None
    assert spec.interconnect.bandwidth == 450e9


def test_a_rate_twice_a_dense_one_is_asked_about_and_not_used() -> None:
    # Data sheets of the H100 SXM say 1,979 TFLOP/s in BF16, with sparsity.
    with pytest.raises(InvalidRequest) as caught:
        read_custom_hardware(_device(dense_tflops={"bf16": 1979}))
    assert caught.value.field == "hardware.custom.dense_tflops.bf16"
    assert "989 TFLOP" in caught.value.message
    assert "sparsity" in caught.value.message
    confirmed = read_custom_hardware(_device(dense_tflops={"bf16": 1979}, confirmed_dense=["bf16"]))
    assert confirmed.dense_flops["bf16"] == 1979e12


def test_a_rate_said_to_be_sparse_is_halved_and_told() -> None:
    spec = read_custom_hardware(_device(dense_tflops=None, sparse_tflops={"bf16": 1979}))
    assert spec.dense_flops["bf16"] == 989.5e12
    assert "sparsity" in spec.notes
    assert "989.5" in spec.notes


def test_no_dense_rate_of_the_catalogue_is_taken_for_a_sparse_one() -> None:
    """Some are twice another device's: B200 has about twice the rate of an H100."""
    for device in published_hardware():
        for number_format, rate in device.dense_flops.items():
            assert dense_if_sparse(number_format, rate) is None


def test_every_twice_dense_rate_is_questioned_unless_another_device_has_it() -> None:
    rates = {
        (name, rate) for device in published_hardware() for name, rate in device.dense_flops.items()
    }
    questioned = 0
    for number_format, rate in rates:
        found = dense_if_sparse(number_format, 2 * rate)
        twin = any(n == number_format and abs(2 * rate / r - 1) < 0.002 for n, r in rates)
        assert (found is None) == twin
        questioned += found is not None
    assert questioned > len(rates) / 2


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"memory_gb": -1}, "memory_gb"),
    ({"memory_gb": True}, "memory_gb"),
    ({"memory_gb": float("nan")}, "memory_gb"),
    ({"memory_gb": 1e300}, "memory_gb"),
    ({"memory_gb": "24"}, "memory_gb"),
    ({"bandwidth_gb_s": 0}, "bandwidth_gb_s"),
    ({"bandwidth_gb_s": float("inf")}, "bandwidth_gb_s"),
    ({"dense_tflops": {"bf16": 0}}, "dense_tflops.bf16"),
    ({"dense_tflops": {"bf16": 10**400}}, "dense_tflops.bf16"),
    ({"dense_tflops": {}}, "dense_tflops"),
    ({"dense_tflops": {"fp8": 100}}, "dense_tflops"),
    ({"dense_tflops": 100}, "dense_tflops"),
    ({"sparse_tflops": {"bf16": 200}}, "sparse_tflops"),
    ({"interconnect": {"type": "x"}}, "interconnect.unidirectional_gb_s"),
    ({"usd_per_hour": -2}, "usd_per_hour"),
    ({"tdp_w": 0}, "tdp_w"),
    ({"name": "x" * 101}, "name"),
    ({"name": "a\nb"}, "name"),
    ({"vendor": "\x00"}, "vendor"),
    ({"category": 7}, "category"),
    ({"interconnect": {"type": "x" * 101, "unidirectional_gb_s": 1}}, "interconnect.type"),
]


@pytest.mark.parametrize(("changes", "field"), WRONG, ids=range(len(WRONG)))
def test_what_no_device_has_is_refused_with_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_custom_hardware(_device(**changes))
    assert caught.value.field == f"hardware.custom.{field}"


def test_unknown_fields_are_refused_by_name() -> None:
    for field, changes in (
        ("memory_tb", {"memory_tb": 1}),
        ("dense_tflops.bfloat", {"dense_tflops": {"bf16": 100, "bfloat": 3}}),
    ):
        with pytest.raises(UnsupportedModel) as caught:
            read_custom_hardware(_device(**changes))
        assert caught.value.field == f"hardware.custom.{field}"


@pytest.mark.parametrize("value", [None, "h100-sxm", [], 3])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(EngineError):
        read_custom_hardware(value)


def test_a_custom_twin_of_a_published_device_computes_the_same() -> None:
    device = get_hardware("h100-sxm")
    twin = read_custom_hardware(
        {
            "memory_gb": device.memory_bytes / 1e9,
            "bandwidth_gb_s": device.bandwidth / 1e9,
            "dense_tflops": {name: rate / 1e12 for name, rate in device.dense_flops.items()},
        }
    )
    assert twin.memory_bytes == device.memory_bytes
    for number_format in ("fp32", "bf16", "fp8", "fp4"):
        ours, theirs = twin.compute_rate(number_format), device.compute_rate(number_format)
        assert ours.used == theirs.used
        assert ours.flops == pytest.approx(theirs.flops)
