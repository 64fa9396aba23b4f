from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.catalog.device import FALLBACKS, HardwareSpec
from engine.catalog.hardware import all_hardware, get_hardware, published_hardware
from engine.errors import UnknownName

RIDGES: dict[str, float | None] = json.loads(
    (Path(__file__).parents[2] / "golden" / "ridge_points.json").read_text(encoding="utf-8")
)["ridge"]
EVERY_DEVICE = [pytest.param(spec, id=spec.id) for spec in published_hardware()]


def test_the_catalogue_holds_every_device_once_with_sources() -> None:
    assert {spec.id for spec in published_hardware()} == RIDGES.keys()
    assert len(published_hardware()) == len(RIDGES) == 74
    assert all(spec.sources for spec in published_hardware())
    assert {spec.kind for spec in published_hardware()} == {"published"}


@pytest.mark.parametrize("spec", EVERY_DEVICE)
def test_ridge_points(spec: HardwareSpec) -> None:
    expected = RIDGES[spec.id]
    if expected is None:  # no 16-bit rate: products run in fp32
        assert spec.compute_rate("bf16").used == "fp32"
    else:
        assert spec.ridge_point() == pytest.approx(expected, abs=0.0501)


@pytest.mark.parametrize("spec", EVERY_DEVICE)
def test_rates_are_dense(spec: HardwareSpec) -> None:
    """Halving the bits at most doubles the rate; a sparse figure in one column would break that.

    Cards that accumulate 16 and 8 bits in FP32 at half the rate are compared at the full one.
    """
    rates = spec.dense_flops
    halved = 1 if spec.fp16_accumulate_flops is None else 2
    sixteen = halved * max(rates.get("bf16", 0.0), rates.get("fp16", 0.0))
    for name in ("fp8", "int8"):
        if name in rates and sixteen:
            assert rates[name] <= 2.05 * sixteen
    if "fp4" in rates:
        widened = 3.05 if spec.id in {"b300-sxm", "gb300"} else 2.05  # more FP4 units than before
        assert rates["fp4"] <= widened * halved * rates["fp8"]


def test_consumer_cards_accumulate_in_fp32_at_half_the_rate() -> None:
    for spec in published_hardware():
        if spec.fp16_accumulate_flops is not None:
            assert spec.fp16_accumulate_flops == pytest.approx(
                2 * spec.dense_flops["fp16"], rel=0.005
            )


def test_units_are_decimal_and_exact() -> None:
    a100 = get_hardware("a100-80-sxm")
    assert a100.memory_bytes == 80_000_000_000
    assert a100.bandwidth == 2_039_000_000_000
    assert a100.dense_flops["fp32"] == 19.5e12
    assert a100.interconnect is not None
    assert a100.interconnect.bandwidth == 300e9


@pytest.mark.parametrize(
    ("device", "asked", "used"),
    [
        ("a100-80-sxm", "fp8", "bf16"),
        ("h100-sxm", "fp8", "fp8"),
        ("v100-sxm2-32", "bf16", "fp16"),
        ("i9-13900k", "bf16", "fp32"),
        ("i9-13900k", "int8", "fp32"),
        ("tpu-v5e", "fp16", "bf16"),
        ("tpu-v5e", "fp32", "bf16"),
        ("h100-sxm", "fp4", "fp8"),
        ("m4-max", "tf32", "fp32"),
    ],
)
def test_formats_without_a_rate_fall_back_as_software_does(
    device: str, asked: str, used: str
) -> None:
    rate = get_hardware(device).compute_rate(asked)
    assert (rate.used, rate.fell_back) == (used, asked != used)
    assert rate.flops == get_hardware(device).dense_flops[used]


@pytest.mark.parametrize("spec", EVERY_DEVICE)
def test_every_device_multiplies_every_format_somehow(spec: HardwareSpec) -> None:
    for name in FALLBACKS:
        assert spec.compute_rate(name).flops > 0


def test_a_format_of_storage_has_no_rate() -> None:
    with pytest.raises(ValueError, match="q4_0"):
        get_hardware("h100-sxm").compute_rate("q4_0")


def test_a_device_without_any_rate_is_an_error() -> None:
    bare = HardwareSpec("x", "x", "", "cpu", 1, 1.0, {"int8": 1.0})
    with pytest.raises(ValueError, match="no rate"):
        bare.compute_rate("fp32")


def test_an_unknown_id_names_the_field() -> None:
    with pytest.raises(UnknownName) as caught:
        get_hardware("b1000")
    assert caught.value.field == "hardware"


def test_ids_are_found_in_any_case() -> None:
    assert get_hardware("H100-SXM") is get_hardware("h100-sxm")


def test_this_machine_is_absent_before_calibration(state_dir: Path) -> None:
    assert all_hardware() == published_hardware()
    with pytest.raises(UnknownName, match="calibrate"):
        get_hardware("this-machine")
