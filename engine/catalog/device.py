"""What is known of one device, and at which rate it multiplies which format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# What software does when a device has no rate for a format: it widens or narrows the numbers to
# the next format of the chain that the device does multiply.
FALLBACKS: Mapping[str, tuple[str, ...]] = {
    "fp32": ("tf32", "bf16", "fp16"),
    "tf32": ("fp32", "bf16", "fp16"),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "int8": ("bf16", "fp16", "fp32"),
    "fp4": ("fp8", "bf16", "fp16", "fp32"),
    "int4": ("int8", "bf16", "fp16", "fp32"),
}


@dataclass(frozen=True, slots=True)
class Interconnect:
    """The link between like devices: all of a device's links together, in one direction."""

    type: str
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Price:
    """What an hour of one device costs to rent, US dollars."""

    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class ComputeRate:
    """The rate at which a device multiplies numbers that are asked for in ``requested``."""

    requested: str
    used: str
    flops: float

    @property
    def fell_back(self) -> bool:
        return self.requested != self.used


@dataclass(frozen=True)
class HardwareSpec:
    """One device. Rates are dense peaks (never with sparsity), FLOP/s by format; bytes, B/s, W.

    ``kind`` is "published" or "measured". ``unverified`` lists what no vendor source confirmed.
    ``fp16_accumulate_flops`` is the faster rate of cards that may accumulate in FP16.
    """

    id: str
    name: str
    vendor: str
    category: str
    memory_bytes: int
    bandwidth: float
    dense_flops: Mapping[str, float]
    year: int | None = None
    interconnect: Interconnect | None = None
    tdp: float | None = None
    price: Price | None = None
    fp16_accumulate_flops: float | None = None
    sources: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    notes: str = ""
    kind: str = field(default="published")

    def compute_rate(self, number_format: str) -> ComputeRate:
        """The rate for an arithmetic format, or of what the device really does instead.

        FP8 on an A100 runs at the BF16 rate, BF16 on a V100 at the FP16 rate.

        Raises:
            ValueError: the format is not one of arithmetic, or the device has no rate at all.
        """
        if number_format not in FALLBACKS:
            raise ValueError(f"{number_format} is not a format that numbers are multiplied in")
        for candidate in (number_format, *FALLBACKS[number_format]):
            rate = self.dense_flops.get(candidate)
            if rate is not None:
                return ComputeRate(number_format, candidate, rate)
        raise ValueError(f"{self.id} has no rate for {number_format} or what it falls back to")

    def ridge_point(self, number_format: str = "bf16") -> float:
        """FLOP/byte above which a step is bound by compute, at the dense rate of the format."""
        return self.compute_rate(number_format).flops / self.bandwidth
