"""One benchmark run: all engines on the same weights, turn by turn, with calibrations between."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import Calibration
from engine.inference.calibration import measure_machine
from engine.inference.device import DTYPES, open_device
from engine.inference.lane_facts import lane_info
from engine.inference.loading import find_model, load_model
from engine.inference.options import EngineOptions
from tests.benchmarks.llama_cpp_peer import LlamaCppPeer, llama_cpp_version, quantized_file
from tests.benchmarks.ours import OurEngine
from tests.benchmarks.peer import TransformersPeer
from tests.benchmarks.report import Machine, Memory, Report, Result
from tests.benchmarks.roofline import hardware_of, roofline_rate
from tests.benchmarks.workload import Throughput, Timing, Workload

SAME_BITS = {"bfloat16": "BF16", "int8-g32-rtn": "Q8_0", "int4-g32-rtn": "Q4_0", "file": "Q4_1"}
"""The format of llama.cpp with as many bits a weight as a lane of ours, scales aside."""

OURS = "First Token"


class Engine(Protocol):
    """Whatever runs workloads."""

    def run(self, workload: Workload) -> Timing: ...


class Bench:
    """Loads the model once for each engine and lane, and times workloads on them."""

    def __init__(self, model: str, device: str, lanes: Sequence[str]) -> None:
        options = EngineOptions(
            model=model, device=device, dtypes=",".join(lanes), calibrate="never"
        )
        loaded = load_model(options)
        config = loaded.config
        self.model_name = config.name
        self.source_format = loaded.source_format
        self.device = open_device(device)
        self.spec = ModelSpec.dense(**loaded.architecture)
        self.lanes = {lane.settings.name: lane_info(lane, on_demand=False) for lane in loaded.lanes}
        self.memory: list[Memory] = []
        self.engines: dict[str, dict[str, Engine]] = {}
        source = find_model(model)
        for lane in loaded.lanes:
            name = lane.settings.name
            engines = self.engines[name] = {
                OURS: OurEngine(lane.executor, config.vocab_size, config.max_context)
            }
            self.memory.append(Memory(OURS, name, lane.executor.weight_bytes))
            if name in DTYPES:
                peer = TransformersPeer(loaded.checkpoint, DTYPES[name], self.device.torch_device)
                engines[TransformersPeer.name] = peer
                self.memory.append(Memory(TransformersPeer.name, name, peer.weight_bytes))
            if source.path is not None and self.device.kind == "cpu":
                self._add_llama_cpp(source.path, name)

    def _add_llama_cpp(self, source: Path, lane: str) -> None:
        file_type = SAME_BITS.get(lane)
        if llama_cpp_version() is None or file_type is None:
            return
        file = source if lane == "file" else quantized_file(source, file_type)
        peer = LlamaCppPeer(file, file_type, self.device.threads)
        self.engines[lane][peer.name] = peer
        self.memory.append(Memory(peer.name, lane, peer.file_bytes))

    def run(
        self, workloads: Sequence[Workload], repeats: int, say: Callable[[str], None]
    ) -> Report:
        """Time every workload ``repeats`` times on all engines, after a warm-up."""
        load_before = os.getloadavg()[0]
        calibrations: list[Calibration] = []
        cases = [(workload, lane) for workload in workloads for lane in self.engines]
        timings: dict[tuple[Workload, str], list[dict[str, Timing]]] = {c: [] for c in cases}
        say("warming up")
        for workload, lane in cases:
            self._turn(workload.warm_up, lane, 0)
        for turn in range(repeats):
            say(f"run {turn + 1} of {repeats}")
            calibrations.append(measure_machine(self.device))
            for workload, lane in cases:
                timings[workload, lane].append(self._turn(workload, lane, turn))
        hardware = hardware_of(calibrations)
        return Report(
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            model=self.model_name,
            source_format=self.source_format,
            repeats=repeats,
            llama_cpp=llama_cpp_version(),
            machine=_machine(calibrations, load_before, hardware),
            results=[
                _result(
                    workload, lane, timings[workload, lane], self._roof(workload, lane, hardware)
                )
                for workload, lane in cases
            ],
            memory=self.memory,
        )

    def _turn(self, workload: Workload, lane: str, turn: int) -> dict[str, Timing]:
        """All engines once; who goes first changes from turn to turn."""
        engines = list(self.engines[lane].items())
        first = turn % len(engines)
        return {name: engine.run(workload) for name, engine in engines[first:] + engines[:first]}

    def _roof(self, workload: Workload, lane: str, hardware: HardwareSpec) -> float:
        return roofline_rate(workload, self.spec, hardware, self.lanes[lane])


def _result(
    workload: Workload, lane: str, turns: Sequence[Mapping[str, Timing]], roofline: float
) -> Result:
    def same(peer: str) -> bool | None:
        # Sequences of a batch start a few tokens apart in our engine, so only lone ones line up.
        if workload.batch > 1:
            return None
        return all(turn[OURS].token_ids == turn[peer].token_ids for turn in turns)

    def rate(engine: str) -> Throughput:
        return Throughput.of(workload, [turn[engine] for turn in turns])

    peers = [name for name in turns[0] if name != OURS]
    return Result(
        workload=workload.name,
        lane=lane,
        ours=rate(OURS),
        peers={name: rate(name) for name in sorted(peers)},
        roofline=roofline,
        same_tokens=same(TransformersPeer.name) if TransformersPeer.name in peers else None,
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
