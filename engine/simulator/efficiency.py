"""What devices and engines reach of the roofline: few numbers, each with a meaning and a source.

``priors.toml`` holds what publications and kernel tables say of a class of devices, an engine or
a kind of link, with sources; ``calibrated.toml`` what a fit to measured rows of the calibration
devices made of them. ``resolve`` puts the numbers of one scenario together.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple, cast

from engine.catalog.device import HardwareSpec, Interconnect
from engine.errors import EngineError, FileFormatError, UnknownName
from engine.refusals import refused
from engine.simulator.formats import StorageFormats
from engine.simulator.layout import ONE_DEVICE, Layout, Route
from engine.simulator.links import DEFAULT_NETWORK, link_of
from engine.simulator.step_price import KNEE, Rates

DEFAULT_ENGINE = "vllm"
Values = Mapping[str, float]
"""Numbers by dotted name: "device.a100.mbu", "engine.vllm.step_us", "link.nvlink.latency_us"."""

_FOLDER = ("data", "efficiency")
_KINDS = ("device", "engine", "link")
_MICRO = 1e-6


@dataclass(frozen=True, slots=True)
class Entry:
    """A class of devices, an engine or a kind of link: where it applies and where its numbers
    come from."""

    id: str
    kind: str
    name: str
    matches: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class EfficiencyTable:
    """All numbers before calibration, and what they belong to."""

    entries: Mapping[str, Entry]
    values: Values

    def of_kind(self, kind: str) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries.values() if entry.kind == kind)


@cache
def prior_table() -> EfficiencyTable:
    """The published numbers.

    Raises:
        FileFormatError: the file is not valid, or an entry is incomplete.
    """
    entries: dict[str, Entry] = {}
    values: dict[str, float] = {}
    for kind in _KINDS:
        for table in cast("list[dict[str, object]]", _read("priors.toml").get(kind, [])):
            name = str(table.pop("id"))
            key = f"{kind}.{name}"
            matches = cast("list[str]", table.pop("matches", []))
            entries[key] = Entry(
                name, kind, str(table.pop("name")), tuple(matches), str(table.pop("source"))
            )
            values.update({f"{key}.{field}": _number(key, v) for field, v in table.items()})
    return EfficiencyTable(entries, values)


def _number(key: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise FileFormatError(f"priors.toml: {key} has something that is no number", field=key)
    return float(value)


def _read(name: str) -> dict[str, object]:
    path = files("engine.catalog").joinpath(*_FOLDER, name)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{name} is not valid TOML: {error}") from error


@cache
def calibrated_values() -> Values:
    """The numbers in use: the published ones, and in their place the calibrated ones.

    Raises:
        FileFormatError: the calibration names what the published numbers do not have.
    """
    prior = prior_table().values
    found = cast("dict[str, float]", _read("calibrated.toml").get("values", {}))
    unknown = sorted(found.keys() - prior.keys())
    if unknown:
        raise FileFormatError(f"calibrated.toml: {unknown[0]} is unknown", field=unknown[0])
    return {**prior, **found}


@cache
def _class_of() -> Mapping[str, str]:
    """Ids, vendors with categories, and categories of devices, with their class."""
    return {key: entry.id for entry in prior_table().of_kind("device") for key in entry.matches}


def device_class(hardware: HardwareSpec) -> str:
    """The class of a device: by its id, else by vendor and category, else the general one."""
    classes = _class_of()
    for key in (hardware.id, f"{hardware.vendor}/{hardware.category}", hardware.category):
        if key in classes:
            return classes[key]
    return classes["*"]


def link_kind(link: Interconnect | None) -> str:
    """The kind of a link; "other" where nothing is known of it."""
    name = link.type.lower() if link else ""
    for entry in prior_table().of_kind("link"):
        if any(name.startswith(match) for match in entry.matches):
            return entry.id
    return "other"


def engine_constant(engine: str, name: str) -> float:
    """A number of an engine that is not fitted: "chunk", "max_sequences", "memory_use",
    "pipelining"."""
    values = prior_table().values
    found = values.get(f"engine.{engine}.{name}")
    return values[f"engine.default.{name}"] if found is None else found


def engine_ids() -> tuple[str, ...]:
    """The engines that have numbers of their own."""
    return tuple(entry.id for entry in prior_table().of_kind("engine"))


def no_such_engine() -> EngineError:
    """The error for a name that is none of ``engine_ids()``."""
    choices = ", ".join(engine_ids())
    return refused("no_such_engine", kind=UnknownName, field="engine", choices=choices)


@dataclass(frozen=True, slots=True)
class Setting:
    """What the efficiency of a scenario depends on: everything but model and batch.

    ``flash`` overrides whether the engine's attention writes a matrix of scores. ``network``
    joins nodes, where the layout is larger than one.
    """

    hardware: HardwareSpec
    formats: StorageFormats
    engine: str = DEFAULT_ENGINE
    layout: Layout = ONE_DEVICE
    flash: bool | None = None
    network: Interconnect = DEFAULT_NETWORK


class _Link(NamedTuple):
    """B/s, and seconds for each doubling of the devices that talk."""

    bandwidth: float
    latency: float


class _Lookup:
    """The numbers of one device class, engine and link; an engine's gaps are "default"'s."""

    def __init__(self, values: Values, setting: Setting) -> None:
        self._values = values
        self._device = f"device.{device_class(setting.hardware)}."
        self._engine = f"engine.{setting.engine}."
        self._setting = setting

    def device(self, name: str) -> float:
        return self._values[self._device + name]

    def engine(self, name: str) -> float:
        found = self._values.get(self._engine + name)
        return self._values["engine.default." + name] if found is None else found

    def link(self, route: Route) -> _Link:
        """What the link of a route reaches. An unknown one is taken to be a tenth of the memory's
        bandwidth."""
        setting = self._setting
        link = link_of(route, setting.layout, setting.hardware, setting.network)
        kind = f"link.{link_kind(link)}."
        peak = link.bandwidth if link else setting.hardware.bandwidth / 10
        return _Link(
            peak * self._values[kind + "efficiency"] * self.engine("link"),
            self._values[kind + "latency_us"] * self.engine("reduce") * _MICRO,
        )


def resolve(setting: Setting, values: Values | None = None) -> Rates[float]:
    """Rates, bandwidths and overheads of a setting, in FLOP/s, B/s and s."""
    look = _Lookup(calibrated_values() if values is None else values, setting)
    hardware, layout = setting.hardware, setting.layout
    bandwidth = hardware.bandwidth
    peak, share = _gemm_peak(setting, look), _gemm_share(setting, look)
    tensor = layout.tensor
    inside, exchange = look.link(Route.GROUP), look.link(Route.EXCHANGE)
    score_bytes = look.engine("score_bytes")
    if setting.flash is not None:
        score_bytes = 0.0 if setting.flash else max(score_bytes, 8.0)
    return Rates(
        gemm_rate=peak * share,
        gemm_bandwidth=bandwidth * look.device("mbu") * _weight_factor(setting, look),
        gemm_half=look.device("half_ridge") * share * peak / bandwidth,
        weight_time=_unpacking(setting, look),
        expert_bandwidth=look.engine("experts"),
        expert_rate=look.engine("expert_rate"),
        attention_rate=_attention_peak(setting)
        * look.device("attention_mfu")
        * look.engine("attention_rate"),
        attention_bandwidth=bandwidth
        * look.device("attention_mbu")
        * look.engine("attention_bandwidth"),
        attention_half=look.device("attention_half"),
        score_bytes=score_bytes,
        move_bandwidth=bandwidth * look.device("move_mbu") * look.engine("move"),
        link_bandwidth=inside.bandwidth,
        reduce_latency=math.log2(tensor) * inside.latency,
        layer_gap=look.device("gap_us") * look.engine("kernels") * _MICRO,
        layer_launch=look.engine("launch_us") * look.device("host") * _MICRO,
        step=(look.engine("step_us") + (look.engine("group_step_us") if tensor > 1 else 0.0))
        * look.device("host")
        * _MICRO,
        sequence=look.engine("sequence_us") * look.device("host") * _MICRO,
        stage=(layout.stages - 1) * look.engine("stage_us") * _MICRO,
        first_token=look.engine("host_ms") * look.device("host") * 1e-3,
        exchange_bandwidth=exchange.bandwidth,
        exchange_latency=math.log2(layout.owners) * exchange.latency,
        stage_bandwidth=look.link(Route.STAGE).bandwidth,
    )


def peaks_of(setting: Setting) -> tuple[float, float, float, float]:
    """Peak FLOP/s of products and of attention, and peak B/s of memory and link."""
    hardware, name = setting.hardware, setting.formats.activations
    link = hardware.interconnect.bandwidth if hardware.interconnect else math.inf
    matmul = hardware.compute_rate(name.name if name.arithmetic else "bf16").flops
    return matmul, _attention_peak(setting), hardware.bandwidth, link


def _narrow(setting: Setting) -> bool:
    """The weights are stored in fewer bits than they are multiplied in."""
    return setting.formats.weights.bits < setting.formats.activations.bits - 1


def _low_bit(setting: Setting) -> bool:
    """The device multiplies in 8 bits or fewer."""
    activations = setting.formats.activations
    if not activations.arithmetic:
        return False
    return setting.hardware.compute_rate(activations.name).used in ("fp8", "int8", "fp4", "int4")


def _weight_factor(setting: Setting, look: _Lookup) -> float:
    factor = look.engine("bandwidth")
    if look.device("hbm") > 0:
        factor *= look.engine("hbm_bandwidth")
    bits = setting.formats.weights.bits
    if _narrow(setting):
        factor *= look.engine("q8_bandwidth" if bits > 7 else "q4_bandwidth")
    return factor


def _unpacking(setting: Setting, look: _Lookup) -> float:
    """Seconds to widen one weight before it is multiplied, on units that have no such format."""
    if not _narrow(setting):
        return 0.0
    ops = look.engine("dequant_ops") * (0.5 if setting.formats.weights.bits > 7 else 1.0)
    return ops / setting.hardware.compute_rate("fp32").flops


def _gemm_peak(setting: Setting, look: _Lookup) -> float:
    hardware, activations = setting.hardware, setting.formats.activations
    if look.engine("fp16_accumulate") > 0 and hardware.fp16_accumulate_flops:
        return hardware.fp16_accumulate_flops
    return hardware.compute_rate(activations.name if activations.arithmetic else "bf16").flops


def _gemm_share(setting: Setting, look: _Lookup) -> float:
    """Share of the peak that large products reach.

    The device allows a share (power and clocks), the engine's kernels another; the smaller one
    counts, smoothly: kernels that leave units idle do not run into the limit of power.
    """
    device, kernels = look.device("mfu"), look.engine("rate")
    if _low_bit(setting):
        device *= look.device("low_bit_mfu")
    if look.device("hbm") > 0:
        kernels *= look.engine("hbm_rate")
    share = (device**-KNEE + kernels**-KNEE) ** (-1 / KNEE)
    return share * (look.engine("q_rate") if _narrow(setting) else 1.0)


def _attention_peak(setting: Setting) -> float:
    name = setting.formats.activations.name
    return setting.hardware.compute_rate(name if name in ("fp32", "tf32") else "bf16").flops
