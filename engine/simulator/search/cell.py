"""One cell of a sweep: everything that a prediction depends on, as flat knobs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from engine.catalog.device import HardwareSpec, Interconnect
from engine.catalog.hardware import get_hardware
from engine.catalog.models import ModelSpec, get_model
from engine.errors import InvalidRequest
from engine.refusals import refused
from engine.simulator.deployment import TIMES, Times
from engine.simulator.efficiency import DEFAULT_ENGINE, engine_ids, no_such_engine
from engine.simulator.scenario import Scenario

FACTORS = (
    "bandwidth_factor",
    "flops_factor",
    "link_factor",
    "launch_factor",
    "host_factor",
)
"""Knobs that multiply what a device or an engine has: bandwidth of memory, rates of arithmetic,
bandwidth of links; time of launching kernels, time of the engine's host between steps."""


COUNTED = ("devices", "batch", "prompt_tokens", "output_tokens")
"""Knobs that a plain question has too, with the same ranges."""


@dataclass(frozen=True, slots=True)
class Cell:
    """``batch`` equal requests that arrive together, on ``devices`` devices that share matrices.

    ``context_tokens`` are cached already when the prompts arrive. ``times`` are those of the
    roofline, or typical ones with the overheads of ``engine``. ``usd_per_hour`` is for one device;
    None takes the catalogue's lowest price. ``memory_utilization`` is the part of the memory that
    may be filled. Factors stretch hardware and overheads: see
    ``FACTORS``; launches and host cost nothing at the roofline.

    Raises:
        InvalidRequest: a number is out of its range (names the field).
    """

    model: str | ModelSpec
    hardware: str | HardwareSpec
    devices: int = 1
    weights: str = "bf16"
    kv: str = "bf16"
    activations: str | None = None
    times: Times = "ideal"
    engine: str = DEFAULT_ENGINE
    batch: int = 1
    prompt_tokens: int = 512
    output_tokens: int = 128
    context_tokens: int = 0
    usd_per_hour: float | None = None
    memory_utilization: float = 0.9
    bandwidth_factor: float = 1.0
    flops_factor: float = 1.0
    link_factor: float = 1.0
    launch_factor: float = 1.0
    host_factor: float = 1.0

    RANGES: ClassVar[dict[str, tuple[int, int]]] = {
        **{name: Scenario.RANGES[name] for name in COUNTED},
        "context_tokens": (0, Scenario.RANGES["prompt_tokens"][1]),
    }
    UTILIZATION_RANGE: ClassVar[tuple[float, float]] = (0.01, 1.0)
    FACTOR_RANGE: ClassVar[tuple[float, float]] = (1e-3, 1e3)

    def __post_init__(self) -> None:
        for name, (low, high) in self.RANGES.items():
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise refused("choose_whole", field=name, low=f"{low:,}", high=f"{high:,}")
        low, high = self.FACTOR_RANGE
        for name in FACTORS:
            _check_number(name, getattr(self, name), low, high)
        _check_number("memory_utilization", self.memory_utilization, *self.UTILIZATION_RANGE)
        if self.usd_per_hour is not None:
            _check_number("usd_per_hour", self.usd_per_hour, 0.0, 1e6)
        if self.times not in TIMES:
            raise refused("choose_one", field="times", choices=", ".join(TIMES))
        if self.engine not in engine_ids():
            raise no_such_engine()
        for name in ("weights", "kv", "activations"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (name == "activations" and value is None):
                raise InvalidRequest("give a name as text", field=name)

    @property
    def model_spec(self) -> ModelSpec:
        """The model's structure.

        Raises:
            UnknownName: the catalogue has none of that id (field "model").
        """
        return get_model(self.model) if isinstance(self.model, str) else self.model

    @property
    def hardware_spec(self) -> HardwareSpec:
        """The device as it is, without factors.

        Raises:
            UnknownName: the catalogue has none of that id (field "hardware").
        """
        return get_hardware(self.hardware) if isinstance(self.hardware, str) else self.hardware

    @property
    def stretched_hardware(self) -> HardwareSpec:
        """The device with its factors."""
        spec = self.hardware_spec
        link, flops = spec.interconnect, self.flops_factor
        accumulate = spec.fp16_accumulate_flops
        return replace(
            spec,
            bandwidth=spec.bandwidth * self.bandwidth_factor,
            dense_flops=MappingProxyType(
                {name: rate * flops for name, rate in spec.dense_flops.items()}
            ),
            interconnect=link and Interconnect(link.type, link.bandwidth * self.link_factor),
            fp16_accumulate_flops=None if accumulate is None else accumulate * flops,
        )

    @property
    def device_price(self) -> float | None:
        """US dollars an hour of one device; None where nothing is known."""
        if self.usd_per_hour is not None:
            return self.usd_per_hour
        price = self.hardware_spec.price
        return None if price is None else price.low

    @property
    def cached_tokens(self) -> int:
        """Positions that each request holds at its end: the last token is never fed back."""
        return self.context_tokens + self.prompt_tokens + self.output_tokens - 1


def _check_number(name: str, value: object, low: float, high: float) -> None:
    number = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    if not low <= number <= high:
        raise refused("choose_number", field=name, low=f"{low:g}", high=f"{high:,g}")
