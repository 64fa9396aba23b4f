"""One benchmark run: both engines on the same weights, turn by turn, with calibrations between."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import Calibration
from engine.inference.calibration import measure_machine
from engine.inference.device import DTYPES, open_device
from engine.inference.loading import load_model
from engine.inference.options import EngineOptions
from engine.inference.weights.default import ModelSource, find_default_model
from tests.benchmarks.ours import OurEngine
from tests.benchmarks.peer import TransformersPeer
from tests.benchmarks.report import Machine, Report, Result
from tests.benchmarks.roofline import hardware_of, roofline_rate
from tests.benchmarks.workload import Throughput, Timing, Workload


class Bench:
    """Loads the model once for each engine and dtype, and times workloads on them."""

    def __init__(self, model: str, device: str, dtypes: Sequence[str]) -> None:
        options = EngineOptions(
            model=model, device=device, dtypes=",".join(dtypes), calibrate="never"
        )
        loaded = load_model(options)
        config = loaded.config
        self.model_name = config.name
        self.source_format = loaded.source_format
        self.device = open_device(device)
        self.spec = ModelSpec.dense(**loaded.architecture)
        self.ours = {
            dtype: OurEngine(loaded.executors[dtype], config.vocab_size, config.max_context)
            for dtype in dtypes
        }
        checkpoint = _source(model).open()
        self.peers = {
            dtype: TransformersPeer(checkpoint, DTYPES[dtype], self.device.torch_device)
            for dtype in dtypes
        }

    def run(
        self, workloads: Sequence[Workload], repeats: int, say: Callable[[str], None]
    ) -> Report:
        """Time every workload ``repeats`` times on both engines, after a warm-up."""
        load_before = os.getloadavg()[0]
        calibrations: list[Calibration] = []
        cases = [(workload, dtype) for workload in workloads for dtype in self.ours]
        timings: dict[tuple[Workload, str], list[tuple[Timing, Timing]]] = {c: [] for c in cases}
        say("warming up")
        for workload, dtype in cases:
            self._pair(workload.warm_up, dtype, ours_first=True)
        for turn in range(repeats):
            say(f"run {turn + 1} of {repeats}")
            calibrations.append(measure_machine(self.device))
            for workload, dtype in cases:
                pair = self._pair(workload, dtype, ours_first=turn % 2 == 0)
                timings[workload, dtype].append(pair)
        hardware = hardware_of(calibrations)
        return Report(
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            model=self.model_name,
            source_format=self.source_format,
            peer=TransformersPeer.name,
            repeats=repeats,
            machine=_machine(calibrations, load_before, hardware),
            results=[
                _result(case, timings[case], roofline_rate(case[0], self.spec, hardware, case[1]))
                for case in cases
            ],
        )

    def _pair(self, workload: Workload, dtype: str, ours_first: bool) -> tuple[Timing, Timing]:
        if ours_first:
            ours = self.ours[dtype].run(workload)
            return ours, self.peers[dtype].run(workload)
        peer = self.peers[dtype].run(workload)
        return self.ours[dtype].run(workload), peer


def _source(model: str) -> ModelSource:
    """The weights that the engine loads for the same option."""
    if model == "tiny":
        return ModelSource(None, "tiny random weights")
    return find_default_model(None if model == "auto" else Path(model))


def _result(
    case: tuple[Workload, str], pairs: Sequence[tuple[Timing, Timing]], roofline: float
) -> Result:
    workload, dtype = case
    return Result(
        workload=workload.name,
        dtype=dtype,
        ours=Throughput.of(workload, [ours for ours, _ in pairs]),
        peer=Throughput.of(workload, [peer for _, peer in pairs]),
        roofline=roofline,
        # Sequences of a batch start a few tokens apart in our engine, so only lone ones line up.
        same_tokens=(
            all(ours.token_ids == peer.token_ids for ours, peer in pairs)
            if workload.batch == 1
            else None
        ),
    )


def _machine(
    calibrations: Sequence[Calibration], load_before: float, hardware: HardwareSpec
) -> Machine:
    first = calibrations[0]
    measured = [c.bandwidth_bytes_per_s for c in calibrations]
    return Machine(
        device=first.device_kind,
        device_name=first.device_name,
        threads=first.threads,
        python=platform.python_version(),
        torch=first.torch_version,
        bandwidth_bytes_per_s=hardware.bandwidth,
        bandwidth_range=(min(measured), max(measured)),
        flops_per_s=dict(hardware.dense_flops),
        load_before=load_before,
    )
