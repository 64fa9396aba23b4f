"""What this machine could reach: the simulator's cost of the very steps that are timed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import Calibration
from engine.inference.messages import LaneInfo
from engine.scheduling.plan import SequenceShape
from engine.simulator.machine.ideal import LaneFormats, LaneRoofline
from engine.simulator.machine.typical import NUMBER_FORMATS
from tests.benchmarks.workload import Workload


def hardware_of(calibrations: Sequence[Calibration]) -> HardwareSpec:
    """This machine with the medians of several calibrations, taken between the runs they judge."""
    first = calibrations[0]
    return HardwareSpec(
        id="benchmarked-machine",
        name=first.device_name,
        vendor="",
        category="gpu" if first.device_kind == "cuda" else "cpu",
        memory_bytes=first.memory_bytes,
        bandwidth=statistics.median(c.bandwidth_bytes_per_s for c in calibrations),
        dense_flops={
            name: statistics.median(c.flops_per_s[name] for c in calibrations)
            for name in first.flops_per_s
        },
        kind="measured",
    )


def roofline_rate(
    workload: Workload, model: ModelSpec, hardware: HardwareSpec, lane: LaneInfo
) -> float:
    """Tokens per second of a workload if every step took its roofline time."""
    return workload.tokens / roofline_seconds(workload.steps(), model, hardware, lane)


def roofline_seconds(
    steps: Sequence[Sequence[SequenceShape]],
    model: ModelSpec,
    hardware: HardwareSpec,
    lane: LaneInfo,
) -> float:
    """Seconds of steps of these shapes, each in its roofline time on the path that it takes."""
    formats = LaneFormats(
        lane.weight_format, lane.kv_format, NUMBER_FORMATS[lane.dtype], lane.native_rows
    )
    costs = LaneRoofline(model, hardware, formats)
    return sum(costs.cost(shapes).time for shapes in steps)
