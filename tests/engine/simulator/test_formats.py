from __future__ import annotations

import pytest

from engine.catalog.hardware import get_hardware
from engine.errors import InvalidRequest
from engine.simulator.formats import resolve_formats


@pytest.mark.parametrize(
    ("device", "weights", "activations", "matmul", "attention", "stored"),
    [
        ("h100-sxm", "bf16", None, "bf16", "bf16", "bf16"),
        ("h100-sxm", "fp16", None, "fp16", "fp16", "fp16"),
        ("h100-sxm", "fp32", None, "fp32", "fp32", "fp32"),
        ("h100-sxm", "tf32", None, "tf32", "tf32", "fp32"),
        ("h100-sxm", "fp8", None, "fp8", "bf16", "bf16"),
        ("h100-sxm", "fp8", "bf16", "bf16", "bf16", "bf16"),
        ("h100-sxm", "int4-g128", None, "bf16", "bf16", "bf16"),
        ("h100-sxm", "int4-g128", "fp8", "fp8", "bf16", "bf16"),
        ("a100-80-sxm", "fp8", None, "bf16", "bf16", "bf16"),
        ("a100-80-sxm", "int8", None, "int8", "bf16", "bf16"),
        ("v100-sxm2-32", "bf16", None, "fp16", "fp16", "bf16"),
        ("h100-sxm", "fp8-b128", None, "fp8", "bf16", "bf16"),
        ("b200-sxm", "nvfp4", "nvfp4", "fp4", "bf16", "bf16"),
        ("b200-sxm", "nvfp4", None, "bf16", "bf16", "bf16"),
        ("h100-sxm", "mxfp4", "mxfp4", "fp8", "bf16", "bf16"),
        ("a100-80-sxm", "nvfp4", "nvfp4", "bf16", "bf16", "bf16"),
        ("a100-80-sxm", "int4-g128", "int4", "int4", "bf16", "bf16"),
        ("i9-13900k", "q4_0", None, "fp32", "fp32", "bf16"),
    ],
)
def test_rates(
    device: str, weights: str, activations: str | None, matmul: str, attention: str, stored: str
) -> None:
    formats = resolve_formats(get_hardware(device), weights, "bf16", activations)
    assert (formats.matmul.used, formats.attention.used) == (matmul, attention)
    assert formats.stored_activations.name == stored
    assert formats.matmul.flops == get_hardware(device).dense_flops[matmul]


@pytest.mark.parametrize("stored_only", ["q4_k", "int4-g128", "iq2_xs", "mixed-4.8"])
def test_what_no_unit_multiplies_is_no_format_of_activations(stored_only: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve_formats(get_hardware("h100-sxm"), "bf16", "bf16", stored_only)
    assert caught.value.field == "activations"
