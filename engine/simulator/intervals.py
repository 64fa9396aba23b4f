"""How far measurements lay from typical predictions: the p10 and p90 of each kind."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import cast

from engine.catalog.device import HardwareSpec
from engine.errors import FileFormatError


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
