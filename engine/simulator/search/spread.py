"""How far measured values lay from typical ones, for the cells of a sweep: as in ``estimates``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from engine.simulator.intervals import Metric, interval, whole_factors
from engine.simulator.search.axes import KnobValue, Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import Metrics
from engine.simulator.search.sweep import SweepResult
from engine.simulator.search.uniform import Floats

_KINDS = (
    (Metric.TTFT, Metric.TTFT),
    (Metric.DECODE, Metric.BATCHED),
    (Metric.LATENCY, Metric.BATCHED),
)
"""Of the first token, the steps and the whole answer: the kind of measurement of one request, and
of several together."""


def spread(cell: Cell, found: Metrics) -> Mapping[str, tuple[float, float]]:
    """The factors of one cell's metrics by name; empty for ideal times."""
    if cell.times == "ideal":
        return {}
    hardware = cell.hardware_spec
    first, step, whole = (
        interval(one if cell.batch == 1 else many, hardware) for one, many in _KINDS
    )
    answer = whole_factors(found.ttft / found.e2e, first, step, whole)
    low, high = float(answer.low), float(answer.high)
    return {"ttft": first, "itl": step, "e2e": (low, high), "tokens_per_s": (1 / high, 1 / low)}


def spreads(result: SweepResult) -> Mapping[str, tuple[Floats, Floats]]:
    """For some metrics, factors of each cell between which eight of ten measured values lay.

    NaN for ideal times; empty where no cell has typical ones. Throughput follows from the total
    latency, so that its factors are the inverse ones.
    """
    sweep = result.sweep
    times, along_times = _along(sweep, "times")
    if "typical" not in times:
        return {}
    ids, along_devices = _along(sweep, "hardware")
    batches, along_batches = _along(sweep, "batch")
    devices = [replace(sweep.base, hardware=name).hardware_spec for name in ids]
    typical = np.array([value == "typical" for value in times]).reshape(along_times)
    alone = np.array([value == 1 for value in batches]).reshape(along_batches)

    def ends(kinds: tuple[Metric, Metric]) -> tuple[Floats, Floats]:
        # Of one request, and of several: low and high of each device.
        one, many = (
            np.array([interval(kind, device) for device in devices]).T.reshape(2, *along_devices)
            for kind in kinds
        )
        low, high = np.where(typical, np.where(alone, one, many), np.nan)
        return np.broadcast_to(low, sweep.shape), np.broadcast_to(high, sweep.shape)

    first, step, whole = (ends(kinds) for kinds in _KINDS)
    ttft, e2e = (np.asarray(result.metrics[name], dtype=np.float64) for name in ("ttft", "e2e"))
    low, high, _ = whole_factors(ttft / e2e, first, step, whole)
    return {"ttft": first, "itl": step, "e2e": (low, high), "tokens_per_s": (1 / high, 1 / low)}


def _along(sweep: Sweep, knob: str) -> tuple[tuple[KnobValue, ...], tuple[int, ...]]:
    """The values of a knob, and the shape that puts them along its axis."""
    shape = [1] * len(sweep.axes)
    for place, axis in enumerate(sweep.axes):
        if axis.knob == knob:
            shape[place] = len(axis.values)
            return axis.values, tuple(shape)
    return (getattr(sweep.base, knob),), tuple(shape)
