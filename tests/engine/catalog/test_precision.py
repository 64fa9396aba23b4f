from __future__ import annotations

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.catalog.precision import FORMATS, get_format
from engine.errors import UnknownName

GGUF_NAMES = {
    "fp32": "F32",
    "fp16": "F16",
    "bf16": "BF16",
    "q4_0": "Q4_0",
    "q4_1": "Q4_1",
    "q5_0": "Q5_0",
    "q5_1": "Q5_1",
    "q8_0": "Q8_0",
    "q2_k": "Q2_K",
    "q3_k": "Q3_K",
    "q4_k": "Q4_K",
    "q5_k": "Q5_K",
    "q6_k": "Q6_K",
    "mxfp4": "MXFP4",
}


@pytest.mark.parametrize(("name", "gguf_name"), GGUF_NAMES.items())
def test_bits_are_those_of_the_gguf_package(name: str, gguf_name: str) -> None:
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[gguf_name]]
    assert get_format(name).bits == 8 * size / elements


@pytest.mark.parametrize(
    ("name", "bits"),
    [("fp8", 8), ("int8", 8), ("int4", 4), ("nvfp4", 4.5), ("int4-g128", 4.15625), ("tf32", 32)],
)
def test_bits_of_other_formats(name: str, bits: float) -> None:
    assert get_format(name).bits == bits


def test_whole_blocks_take_whole_bytes() -> None:
    size = get_format("q4_0").bytes_for(576 * 576)
    assert size == 576 * 576 // 32 * 18
    assert isinstance(size, int)


def test_a_fraction_of_a_byte_is_kept() -> None:
    assert get_format("int4").bytes_for(3) == 1.5
    assert get_format("bf16").bytes_for(2.5) == 5.0


@pytest.mark.parametrize(
    ("alias", "name"),
    [("BF16", "bf16"), ("float32", "fp32"), ("bfloat16", "bf16"), ("Q6_K", "q6_k")],
)
def test_names_of_torch_and_gguf_are_understood(alias: str, name: str) -> None:
    assert get_format(alias) is FORMATS[name]


def test_an_unknown_format_names_the_field_and_not_the_input() -> None:
    with pytest.raises(UnknownName) as caught:
        get_format("<b>int3</b>", "weights")
    assert caught.value.field == "weights"
    assert "<b>" not in caught.value.message
