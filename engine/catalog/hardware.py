"""The devices of the catalogue: published figures, and this machine once it is calibrated."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from engine.catalog.device import FALLBACKS, HardwareSpec, Interconnect, Price
from engine.catalog.loading import Table, read_catalogue
from engine.catalog.names import unknown_id
from engine.catalog.this_machine import THIS_MACHINE_ID, this_machine, this_machine_if_readable
from engine.catalog.units import GB
from engine.errors import FileFormatError, UnknownName

__all__ = ["HardwareSpec", "all_hardware", "get_hardware", "published_hardware", "read_device"]

_TERA = 10**12


@cache
def published_hardware() -> tuple[HardwareSpec, ...]:
    """Every device of the catalogue, without this machine.

    Raises:
        FileFormatError: a catalogue file is malformed, or an id occurs twice.
    """
    devices: dict[str, HardwareSpec] = {}
    for file in read_catalogue("hardware"):
        vendor, category = file.text("vendor"), file.text("category")
        for entry in file.tables("devices"):
            spec = read_device(entry, vendor, category)
            if spec.id in devices:
                raise FileFormatError(f"device {spec.id} occurs twice", field="id")
            devices[spec.id] = spec
        file.done()
    return tuple(devices.values())


def all_hardware() -> tuple[HardwareSpec, ...]:
    """Every device of the catalogue; this machine first, where it was calibrated."""
    own = this_machine_if_readable()
    return published_hardware() if own is None else (own, *published_hardware())


@cache
def _by_id() -> dict[str, HardwareSpec]:
    return {spec.id: spec for spec in published_hardware()}


def get_hardware(hardware_id: str) -> HardwareSpec:
    """The device of that id, in any case; "this-machine" once it was calibrated.

    Raises:
        UnknownName: there is none of that id (field "hardware").
        FileFormatError: this machine was asked for and its calibration cannot be read.
    """
    key = hardware_id.lower()
    if key == THIS_MACHINE_ID:
        own = this_machine()
        if own is None:
            raise UnknownName(
                "this machine is not calibrated yet; run: python -m engine calibrate",
                field="hardware",
            )
        return own
    spec = _by_id().get(key)
    if spec is None:
        raise unknown_id("hardware", hardware_id, [THIS_MACHINE_ID, *_by_id()])
    return spec


def read_device(entry: Table, vendor: str, category: str) -> HardwareSpec:
    """The device of one entry.

    Raises:
        FileFormatError: a field is missing, mistyped or unknown.
    """
    accumulate = "fp16_accumulate_tflops"
    spec = HardwareSpec(
        id=entry.text("id"),
        name=entry.text("name"),
        vendor=vendor,
        category=category,
        year=entry.integer("year"),
        memory_bytes=round(entry.number("memory_gb") * GB),
        bandwidth=_scaled(entry.number("bandwidth_gb_s"), GB),
        dense_flops=_read_rates(entry),
        interconnect=_read_interconnect(entry.table("interconnect")),
        tdp=entry.number("tdp_w") if "tdp_w" in entry else None,
        price=_read_price(entry.table("usd_per_hour")),
        fp16_accumulate_flops=(
            _scaled(entry.number(accumulate), _TERA) if accumulate in entry else None
        ),
        sources=entry.texts("sources"),
        unverified=entry.texts("unverified"),
        notes=entry.text("notes", ""),
    )
    entry.done()
    return spec


def _scaled(value: float, scale: int) -> float:
    """The value in base units, without the dust of binary fractions: 19.5e12 exactly."""
    return float(round(value * scale))


def _read_rates(entry: Table) -> Mapping[str, float]:
    rates = entry.numbers("dense_tflops")
    unknown = rates.keys() - FALLBACKS.keys()
    if unknown or not rates:
        raise FileFormatError("dense_tflops must name formats of arithmetic", field="dense_tflops")
    return MappingProxyType({name: _scaled(rate, _TERA) for name, rate in rates.items()})


def _read_interconnect(table: Table | None) -> Interconnect | None:
    if table is None:
        return None
    link = Interconnect(table.text("type"), _scaled(table.number("unidirectional_gb_s"), GB))
    table.done()
    return link


def _read_price(table: Table | None) -> Price | None:
    if table is None:
        return None
    price = Price(table.number("low"), table.number("high"), table.text("source"))
    table.done()
    return price
