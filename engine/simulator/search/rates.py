"""Rates of devices and engines as columns, stretched by factors, for sweeps over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engine.simulator.efficiency import Setting, resolve
from engine.simulator.formats import StepFormats, resolve_formats
from engine.simulator.layout import Layout
from engine.simulator.search.cell import Cell
from engine.simulator.search.uniform import Floats
from engine.simulator.step_price import Peaks, Rates, Value


@dataclass(frozen=True, slots=True)
class Devices:
    """What cells have for devices and engines, each an array. ``rates`` are of typical times.

    ``price`` is in US dollars an hour of one device, NaN where none is known; ``memory`` in bytes.
    """

    peaks: Peaks
    rates: Rates[Floats] | None
    memory: Floats
    price: Floats


@dataclass(frozen=True, slots=True)
class Factors:
    """How many times a device's rates, or an engine's overheads, cells have."""

    bandwidth: Floats
    flops: Floats
    link: Floats
    launch: Floats
    host: Floats

    NAMES: ClassVar[tuple[str, ...]] = ("bandwidth", "flops", "link", "launch", "host")


def device_columns(cells: list[Cell], shape: tuple[int, ...], factors: Factors) -> Devices:
    """The devices of ``cells``, put into ``shape``, with factors that broadcast with it."""
    rows = [_row(cell) for cell in cells]

    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64).reshape(shape)

    link = np.where(column([row.linked for row in rows]) > 0, factors.link, factors.bandwidth)
    matmul, attention, bandwidth, links = (
        column(list(v)) for v in zip(*(r.peaks for r in rows), strict=True)
    )
    peaks = Peaks(
        matmul * factors.flops,
        attention * factors.flops,
        bandwidth * factors.bandwidth,
        links * link,
    )
    rates = None
    if rows[0].rates is not None:
        table = zip(*(row.rates for row in rows if row.rates is not None), strict=True)
        rates = _stretched(Rates(*(column(list(values)) for values in table)), factors, link)
    memory = column([row.memory for row in rows])
    return Devices(peaks, rates, memory, column([row.price for row in rows]))


def with_overheads(rates: Rates[Value], launch: Value, host: Value) -> Rates[Value]:
    """Rates with the time of launches, and that of the engine's host, so many times as long."""
    return rates._replace(
        layer_gap=rates.layer_gap * launch,
        layer_launch=rates.layer_launch * launch,
        step=rates.step * host,
        sequence=rates.sequence * host,
        stage=rates.stage * host,
        first_token=rates.first_token * host,
    )


def _stretched(rates: Rates[Floats], factors: Factors, link: Floats) -> Rates[Floats]:
    """The rates of devices with more bandwidth, arithmetic and link, and other overheads.

    The rows at which half of a product's rate is reached lie where the ridge lies.
    """
    bandwidth, flops = factors.bandwidth, factors.flops
    hardware = rates._replace(
        gemm_rate=rates.gemm_rate * flops,
        gemm_bandwidth=rates.gemm_bandwidth * bandwidth,
        gemm_half=rates.gemm_half * flops / bandwidth,
        weight_time=rates.weight_time / flops,
        attention_rate=rates.attention_rate * flops,
        attention_bandwidth=rates.attention_bandwidth * bandwidth,
        move_bandwidth=rates.move_bandwidth * bandwidth,
        link_bandwidth=rates.link_bandwidth * link,
    )
    return with_overheads(hardware, factors.launch, factors.host)


@dataclass(frozen=True, slots=True)
class _Row:
    """One device and engine, without factors; an unknown link is infinitely fast when ideal and
    a part of the memory's bandwidth when typical."""

    peaks: tuple[float, float, float, float]
    linked: bool
    memory: float
    price: float
    rates: Rates[float] | None


def _row(cell: Cell) -> _Row:
    hardware = cell.hardware_spec
    formats = resolve_formats(hardware, cell.weights, cell.kv, cell.activations)
    link, price = hardware.interconnect, cell.device_price
    speed = math.inf if link is None else link.bandwidth
    return _Row(
        peaks=(formats.matmul.flops, formats.attention.flops, hardware.bandwidth, speed),
        linked=link is not None,
        memory=float(hardware.memory_bytes),
        price=math.nan if price is None else price,
        rates=None if cell.times == "ideal" else _rates(cell, formats),
    )


def _rates(cell: Cell, formats: StepFormats) -> Rates[float]:
    return resolve(Setting(cell.hardware_spec, formats, cell.engine, Layout(tensor=cell.devices)))
