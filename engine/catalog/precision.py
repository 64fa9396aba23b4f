"""Number formats, with the bits that an element really takes once scales and zeros are counted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from engine.errors import UnknownName
from engine.refusals import refused

Number = int | float
"""An exact count stays an int; a count of fractional bytes is a float."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How one number is stored.

    ``element_bits`` hold the number itself; each group of ``group`` numbers shares another
    ``group_bits`` of scales and zeros. ``arithmetic`` says that matrix units can multiply numbers
    of this format as they are; ``products`` names the arithmetic format whose units multiply
    numbers that differ from it in their scales only. The others are widened to 16 bits first.
    """

    name: str
    element_bits: int
    group: int = 1
    group_bits: int = 0
    arithmetic: bool = False
    description: str = ""
    products: str = ""

    @property
    def multiplied_as(self) -> str | None:
        """The arithmetic format of its products, or None where it is only stored."""
        return self.name if self.arithmetic else self.products or None

    @property
    def exact_bits(self) -> Fraction:
        """Bits an element with its share of scales and zeros, exactly."""
        return self.element_bits + Fraction(self.group_bits, self.group)

    @property
    def bits(self) -> float:
        """Bits an element with its share of scales and zeros: 4.5 for Q4_0, not 4."""
        return float(self.exact_bits)

    def bytes_for(self, count: Number) -> Number:
        """Bytes that ``count`` numbers take."""
        if isinstance(count, int):
            return whole(count * self.exact_bits / 8)
        return count * self.bits / 8


def whole(value: Fraction | float) -> Number:
    """The value as an int where it is one, so that exact counts print and compare as such."""
    return int(value) if value == int(value) else float(value)


_FORMATS = (
    NumberFormat("fp32", 32, arithmetic=True, description="IEEE single precision"),
    NumberFormat(
        "tf32", 32, arithmetic=True, description="stored as fp32, multiplied with 10-bit mantissas"
    ),
    NumberFormat("bf16", 16, arithmetic=True, description="bfloat16"),
    NumberFormat("fp16", 16, arithmetic=True, description="IEEE half precision"),
    NumberFormat("fp8", 8, arithmetic=True, description="8-bit float, one scale a tensor"),
    NumberFormat("int8", 8, arithmetic=True, description="8-bit integer, one scale a channel"),
    NumberFormat("fp4", 4, arithmetic=True, description="4-bit float without scales"),
    NumberFormat("int4", 4, arithmetic=True, description="4-bit integer without scales"),
    NumberFormat(
        "fp8-b128",
        8,
        128 * 128,
        32,
        description="8-bit floats, a 32-bit scale for 128 by 128",
        products="fp8",
    ),
    NumberFormat(
        "mxfp4", 4, 32, 8, description="4-bit floats, an 8-bit scale for 32", products="fp4"
    ),
    NumberFormat(
        "nvfp4", 4, 16, 8, description="4-bit floats, an 8-bit scale for 16", products="fp4"
    ),
    NumberFormat(
        "mxfp8", 8, 32, 8, description="8-bit floats, an 8-bit scale for 32", products="fp8"
    ),
    *(
        NumberFormat(
            f"int8-g{group}",
            8,
            group,
            16,
            description=f"8-bit integers, a 16-bit scale for {group}",
        )
        for group in (32, 64, 128)
    ),
    *(
        NumberFormat(
            f"int4-g{group}-sym",
            4,
            group,
            16,
            description=f"4-bit integers around 0, a 16-bit scale for {group}",
        )
        for group in (32, 64, 128)
    ),
    *(
        NumberFormat(
            f"int4-g{group}",
            4,
            group,
            20,
            description=f"4-bit integers, 16-bit scale and 4-bit zero for {group}",
        )
        for group in (32, 64, 128)
    ),
    # GGUF blocks: 32 numbers with fp16 scales, or 256 numbers with scales of scales.
    NumberFormat("q4_0", 4, 32, 16, description="GGUF: 18 bytes for 32"),
    NumberFormat("q4_1", 4, 32, 32, description="GGUF: 20 bytes for 32"),
    NumberFormat("q5_0", 5, 32, 16, description="GGUF: 22 bytes for 32"),
    NumberFormat("q5_1", 5, 32, 32, description="GGUF: 24 bytes for 32"),
    NumberFormat("q8_0", 8, 32, 16, description="GGUF: 34 bytes for 32"),
    NumberFormat("q2_k", 2, 256, 160, description="GGUF: 84 bytes for 256"),
    NumberFormat("q3_k", 3, 256, 112, description="GGUF: 110 bytes for 256"),
    NumberFormat("q4_k", 4, 256, 128, description="GGUF: 144 bytes for 256"),
    NumberFormat("q5_k", 5, 256, 128, description="GGUF: 176 bytes for 256"),
    NumberFormat("q6_k", 6, 256, 144, description="GGUF: 210 bytes for 256"),
    NumberFormat("tq1_0", 1, 256, 176, description="GGUF: 54 bytes for 256"),
    NumberFormat("tq2_0", 2, 256, 16, description="GGUF: 66 bytes for 256"),
    NumberFormat("iq1_s", 1, 256, 144, description="GGUF: 50 bytes for 256"),
    NumberFormat("iq1_m", 1, 256, 192, description="GGUF: 56 bytes for 256"),
    NumberFormat("iq2_xxs", 2, 256, 16, description="GGUF: 66 bytes for 256"),
    NumberFormat("iq2_xs", 2, 256, 80, description="GGUF: 74 bytes for 256"),
    NumberFormat("iq2_s", 2, 256, 144, description="GGUF: 82 bytes for 256"),
    NumberFormat("iq3_xxs", 3, 256, 16, description="GGUF: 98 bytes for 256"),
    NumberFormat("iq3_s", 3, 256, 112, description="GGUF: 110 bytes for 256"),
    NumberFormat("iq4_nl", 4, 32, 16, description="GGUF: 18 bytes for 32"),
    NumberFormat("iq4_xs", 4, 256, 64, description="GGUF: 136 bytes for 256"),
)

FORMATS: dict[str, NumberFormat] = {item.name: item for item in _FORMATS}

_ALIASES = {
    "float32": "fp32",
    "f32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "f16": "fp16",
    "float8": "fp8",
    "fp8_e4m3": "fp8",
    "awq": "int4-g128",
    "gptq": "int4-g128",
}


_MIXED = re.compile(r"mixed-(\d{1,2})(?:\.(\d{1,3}))?")
_THOUSANDTHS = 1000


def mixed_format(bits: float) -> NumberFormat:
    """Numbers of several formats that take ``bits`` each on average, scales and zeros included.

    ``bits`` from 1 to 64, kept to a thousandth; the name, such as ``mixed-5.734``, says them.
    """
    thousandths = round(bits * _THOUSANDTHS)
    if not _THOUSANDTHS <= thousandths <= 64 * _THOUSANDTHS:
        raise ValueError("a number takes from 1 to 64 bits")
    name = f"mixed-{thousandths / _THOUSANDTHS:g}"
    words = f"several formats, {thousandths / _THOUSANDTHS:g} bits a number on average"
    return NumberFormat(name, 0, _THOUSANDTHS, thousandths, description=words)


def get_format(name: str, field: str = "format") -> NumberFormat:
    """The format of that name, in any case; torch's and GGUF's names are understood too.

    Raises:
        UnknownName: there is no such format; ``field`` names the input at fault.
    """
    key = name.lower()
    mixed = _MIXED.fullmatch(key)
    if mixed and 1 <= float(key.removeprefix("mixed-")) <= 64:
        return mixed_format(float(key.removeprefix("mixed-")))
    found = FORMATS.get(_ALIASES.get(key, key))
    if found is None:
        choices = ", ".join(FORMATS)
        raise refused("no_such_format", kind=UnknownName, field=field, choices=choices)
    return found
