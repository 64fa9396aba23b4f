"""How far measurements lay from typical predictions: the p10 and p90 of each kind."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from engine.catalog.device import HardwareSpec
from engine.errors import FileFormatError

Floats = NDArray[np.float64]
Ends = tuple[Floats | float, Floats | float]
"""Low and high factors."""


class Metric(StrEnum):
    """Kinds of numbers that are predicted about equally well."""

    DECODE = "decode"
    PREFILL = "prefill"
    TTFT = "ttft"
    LATENCY = "latency"
    BATCHED = "batched"
    MAX_LOAD = "max_load"
    LOADED = "loaded"


def segment(hardware: HardwareSpec) -> str:
    """The segment of a device: devices whose predictions are about equally good."""
    if hardware.category == "cpu":
        return "CPU"
    if hardware.vendor == "NVIDIA":
        return "NVIDIA data centre" if hardware.category == "datacenter-gpu" else "NVIDIA cards"
    return hardware.vendor if hardware.vendor in ("AMD", "Apple") else "other accelerators"


@cache
def _table() -> Mapping[str, tuple[float, float]]:
    path = files("engine.catalog") / "data" / "efficiency" / "intervals.toml"
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"intervals.toml is not valid TOML: {error}") from error
    entries = cast("dict[str, list[float]]", values["intervals"])
    return {name: (low, high) for name, (low, high) in entries.items()}


def pick(
    table: Mapping[str, tuple[float, float]], metric: Metric, hardware: HardwareSpec
) -> tuple[float, float]:
    """The factors of the narrowest group that a table has: kind and segment, kind, all."""
    for key in (f"{metric} / {segment(hardware)}", str(metric)):
        if key in table:
            return table[key]
    return table["all"]


def interval(metric: Metric, hardware: HardwareSpec) -> tuple[float, float]:
    """Factors on a typical value: eight of ten measured ones lay between them."""
    return pick(_table(), metric, hardware)


class WholeFactors(NamedTuple):
    """Factors on a whole answer's time; ``of_parts`` where they are made of its parts'."""

    low: Floats
    high: Floats
    of_parts: NDArray[np.bool_]


def whole_factors(share: Floats | float, first: Ends, rest: Ends, whole: Ends) -> WholeFactors:
    """The factors of a whole answer of which ``share`` passes before its first token.

    Either its two parts take their own p10, or p90, at once (``first`` until the first token,
    ``rest`` after it), or whole answers that were measured say it: whichever lie closer together.
    Numbers, or arrays that broadcast together.
    """
    low, high = (share * one + (1 - share) * other for one, other in zip(first, rest, strict=True))
    of_parts = np.asarray(high * whole[0] <= whole[1] * low)
    return WholeFactors(
        np.where(of_parts, low, whole[0]), np.where(of_parts, high, whole[1]), of_parts
    )
