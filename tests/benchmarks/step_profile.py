"""``python -m tests.benchmarks.step_profile``: where a decode step's time goes, stage by stage.

The engine's own step events say how long each stage took; what is left of the wall time lies
between the stages: the scheduler, the plan, the events. Beside it stand the time that the weights
alone take at the read bandwidth that was measured in the same run, and the roofline.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import Calibration
from engine.catalog.units import si_label
from engine.inference.calibration import measure_machine
from engine.inference.device import open_device
from engine.inference.lane_facts import lane_info
from tests.benchmarks.engines import Lane
from tests.benchmarks.roofline import hardware_of, roofline_seconds
from tests.benchmarks.workload import Workload

LANES = ("bfloat16", "int8-g32-rtn", "int4-g32-rtn")
BATCHES = (1, 8, 32)
PAGE = Path(__file__).parent / "PROFILE.md"


@dataclass(frozen=True, slots=True)
class StepProfile:
    """Seconds of a decode step of one lane and batch: medians over ``repeats`` runs.

    ``between`` is what no stage accounts for; ``weights`` what reading the weights takes at the
    measured bandwidth.
    """

    lane: str
    batch: int
    step: float
    stages: dict[str, float]
    weights: float
    roofline: float

    @property
    def between(self) -> float:
        return self.step - sum(self.stages.values())


def profile(lane: Lane, batches: Sequence[int], repeats: int, steps: int) -> list[StepProfile]:
    """Run one lane's decode workloads, with calibrations between them."""
    ours = lane.open_ours()
    info = lane_info(ours.model.lanes[0], on_demand=False)
    spec = ModelSpec.dense(**ours.model.architecture)
    device = open_device(lane.device)
    workloads = [Workload(batch, 64, steps) for batch in batches]
    for workload in workloads:
        ours.run(workload.warm_up)
    times: dict[Workload, list[float]] = {workload: [] for workload in workloads}
    stages: dict[Workload, list[dict[str, float]]] = {workload: [] for workload in workloads}
    calibrations: list[Calibration] = []
    for _ in range(repeats):
        calibrations.append(measure_machine(device))
        for workload in workloads:
            times[workload].append(ours.run(workload).seconds / steps)
            stages[workload].append(ours.stage_seconds)
    hardware = hardware_of(calibrations)
    return [
        StepProfile(
            lane=lane.name,
            batch=workload.batch,
            step=statistics.median(times[workload]),
            stages={
                name: statistics.median(turn[name] for turn in stages[workload])
                for name in stages[workload][0]
            },
            weights=ours.weight_bytes / hardware.bandwidth,
            roofline=roofline_seconds(workload.steps(), spec, hardware, info) / steps,
        )
        for workload in workloads
    ]


def page(profiles: Sequence[StepProfile], machine: str) -> str:
    """The profiles as a Markdown page."""
    names = list({name: None for item in profiles for name in item.stages})
    heads = ["lane", "batch", "step", *names, "between", "weights alone", "roofline", "share"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for item in profiles:
        cells = [
            item.lane,
            str(item.batch),
            *(
                f"{1e3 * value:.2f}"
                for value in (
                    item.step,
                    *(item.stages.get(name, 0.0) for name in names),
                    item.between,
                    item.weights,
                    item.roofline,
                )
            ),
            f"{item.roofline / item.step:.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return (
        "# Where a decode step goes\n\n"
        "Written by `python -m tests.benchmarks.step_profile`. All times in ms, measured but for "
        "the last three columns: *weights alone* is their bytes over the read bandwidth measured "
        "in the same run, *roofline* the predicted step on that bandwidth and arithmetic, *share* "
        "the roofline over the step. Stages are the engine's own; *between* is what is left of "
        "the wall time: scheduler, plan, sampling's way back, events.\n\n"
        + "\n".join(lines)
        + f"\n\n*{machine}*\n"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.step_profile", description=__doc__
    )
    parser.add_argument("--model", default="auto", help="auto, tiny, a GGUF file or a folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--lane", action="append", help="such as int4-g32-rtn; default: three")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--output", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    profiles: list[StepProfile] = []
    for name in options.lane or LANES:
        print(f"{name}: {options.repeats} runs", file=sys.stderr, flush=True)
        lane = Lane(options.model, options.device, name)
        profiles += profile(lane, BATCHES, options.repeats, options.steps)
    device = open_device(options.device)
    bandwidth = si_label(measure_machine(device).bandwidth_bytes_per_s, "B/s")
    machine = (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC on {device.name} ({device.kind}, "
        f"{device.threads} threads), reads of {bandwidth} at the end, Python "
        f"{platform.python_version()}, torch {torch.__version__}; medians of {options.repeats} "
        f"runs of {options.steps} steps"
    )
    options.output.write_text(page(profiles, machine), encoding="utf-8")
    print(page(profiles, machine))


if __name__ == "__main__":
    main()
