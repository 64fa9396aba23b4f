from __future__ import annotations

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.catalog.precision import FORMATS, get_format
from engine.errors import UnknownName

GGUF_NAMES = {"fp32": "F32", "fp16": "F16"} | {
    name: name.upper()
    for name in (
        "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
        "tq1_0", "tq2_0", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
        "iq4_nl", "iq4_xs", "mxfp4", "nvfp4",
    )
}  # fmt: skip


@pytest.mark.parametrize(("name", "gguf_name"), GGUF_NAMES.items())
def test_bits_are_those_of_the_gguf_package(name: str, gguf_name: str) -> None:
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[gguf_name]]
    assert get_format(name).bits == 8 * size / elements


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("fp8", 8),
        ("int8", 8),
        ("int4", 4),
        ("tf32", 32),
        ("nvfp4", 4.5),
        ("mxfp8", 8.25),
        ("fp8-b128", 8 + 32 / 128**2),
        ("int4-g32", 4 + 20 / 32),
        ("int4-g64", 4 + 20 / 64),
        ("int4-g128", 4.15625),
        ("int4-g32-sym", 4.5),
        ("int4-g128-sym", 4.125),
        ("int8-g32", 8.5),
        ("int8-g128", 8.125),
    ],
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


@pytest.mark.parametrize(
    ("name", "products"),
    [("bf16", "bf16"), ("nvfp4", "fp4"), ("mxfp8", "fp8"), ("fp8-b128", "fp8"), ("q4_k", None)],
)
def test_formats_with_scales_are_multiplied_as_their_numbers(
    name: str, products: str | None
) -> None:
    assert get_format(name).multiplied_as == products


def test_every_format_of_products_is_one_of_arithmetic() -> None:
    for item in FORMATS.values():
        products = item.multiplied_as
        assert products is None or FORMATS[products].arithmetic
