"""How far measured values lay from typical ones, for the cells of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from engine.simulator.intervals import Metric, interval
from engine.simulator.search.axes import KnobValue, Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.uniform import Floats

_KINDS: Mapping[str, tuple[Metric, Metric]] = {
    "ttft": (Metric.TTFT, Metric.TTFT),
    "itl": (Metric.DECODE, Metric.BATCHED),
    "e2e": (Metric.LATENCY, Metric.BATCHED),
    "tokens_per_s": (Metric.LATENCY, Metric.BATCHED),
}
"""The kind of measurement of one request, and of several together."""


def spread(metric: str, cell: Cell) -> tuple[float, float] | None:
    """The factors of one cell; None for ideal times, and for what has no interval."""
    if cell.times == "ideal" or metric not in _KINDS:
        return None
    alone, together = _KINDS[metric]
    low, high = interval(alone if cell.batch == 1 else together, cell.hardware_spec)
    return (1 / high, 1 / low) if metric == "tokens_per_s" else (low, high)


def spreads(sweep: Sweep) -> dict[str, tuple[Floats, Floats]]:
    """For some metrics, factors of each cell between which eight of ten measured values lay.

    NaN for ideal times; empty where no cell has typical ones. Throughput follows from the total
    latency, so that its factors are the inverse ones.
    """
    times, along_times = _along(sweep, "times")
    if "typical" not in times:
        return {}
    ids, along_devices = _along(sweep, "hardware")
    batches, along_batches = _along(sweep, "batch")
    devices = [replace(sweep.base, hardware=name).hardware_spec for name in ids]
    typical = np.array([value == "typical" for value in times]).reshape(along_times)
    alone = np.array([value == 1 for value in batches]).reshape(along_batches)
    found: dict[str, tuple[Floats, Floats]] = {}
    for metric, kinds in _KINDS.items():
        # Of one request, and of several: low and high of each device.
        one, many = (
            np.array([interval(kind, device) for device in devices]).T.reshape(2, *along_devices)
            for kind in kinds
        )
        ends = np.where(typical, np.where(alone, one, many), np.nan)
        low, high = (np.broadcast_to(end, sweep.shape) for end in ends)
        found[metric] = (1 / high, 1 / low) if metric == "tokens_per_s" else (low, high)
    return found


def _along(sweep: Sweep, knob: str) -> tuple[tuple[KnobValue, ...], tuple[int, ...]]:
    """The values of a knob, and the shape that puts them along its axis."""
    shape = [1] * len(sweep.axes)
    for place, axis in enumerate(sweep.axes):
        if axis.knob == knob:
            shape[place] = len(axis.values)
            return axis.values, tuple(shape)
    return (getattr(sweep.base, knob),), tuple(shape)
