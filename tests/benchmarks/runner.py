"""One lane at a time: all engines on the same weights, turn by turn, with calibrations between."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import transformers

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import Calibration
from engine.inference.calibration import measure_machine
from engine.inference.device import open_device
from engine.inference.lane_facts import lane_info
from engine.inference.messages import LaneInfo
from tests.benchmarks.engines import OURS, TRANSFORMERS, Engine, Lane
from tests.benchmarks.llama_cpp_peer import llama_cpp_version
from tests.benchmarks.report import FirstTokens, LaneRun, Machine, Memory, Result
from tests.benchmarks.resident import growth
from tests.benchmarks.roofline import hardware_of, roofline_rate, roofline_seconds
from tests.benchmarks.workload import (
    FirstToken,
    Plan,
    Prompt,
    Spread,
    Timing,
    Workload,
    tokens_per_second,
)

T = TypeVar("T")
Say = Callable[[str], None]
Turns = Sequence[Mapping[str, T]]
"""What each engine did, turn by turn."""


class LaneBench:
    """The engines of one lane, loaded, and the roofline that they are compared with."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._device = open_device(lane.device)
        ours = lane.open_ours()
        model = ours.model
        self._tokenizer = model.tokenizer
        self._spec = ModelSpec.dense(**model.architecture)
        self._info: LaneInfo = lane_info(model.lanes[0], on_demand=False)
        self._kinds = {lane.name_of(kind): kind for kind in lane.kinds}
        self._engines: dict[str, Engine] = {
            name: ours if kind == OURS else lane.open(kind) for name, kind in self._kinds.items()
        }

    def run(self, plan: Plan, repeats: int, say: Say) -> LaneRun:
        """Run everything ``repeats`` times on all engines, after a warm-up; then look at the
        memory that each takes in a process of its own."""
        load_before = os.getloadavg()[0]
        prompt = Prompt.of_length(self._tokenizer, plan.first_token_after)
        timings: dict[Workload, list[dict[str, Timing]]] = {w: [] for w in plan.workloads}
        firsts: list[dict[str, FirstToken]] = []
        calibrations: list[Calibration] = []
        say(f"{self._lane.name}: warming up")
        for workload in plan.workloads:
            self._turn(lambda engine, w=workload: engine.run(w.warm_up), 0)
        self._turn(lambda engine: engine.first_token(prompt), 0)
        for turn in range(repeats):
            say(f"{self._lane.name}: run {turn + 1} of {repeats}")
            calibrations.append(measure_machine(self._device))
            for workload, turns in timings.items():
                turns.append(self._turn(lambda engine, w=workload: engine.run(w), turn))
            firsts.append(self._turn(lambda engine: engine.first_token(prompt), turn))
        hardware = hardware_of(calibrations)
        say(f"{self._lane.name}: memory")
        return LaneRun(
            lane=self._lane.name,
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            repeats=repeats,
            machine=_machine(calibrations, load_before, hardware),
            results=[self._result(w, turns, hardware) for w, turns in timings.items()],
            first_tokens=self._first_tokens(prompt, firsts, hardware),
            memory=[self._memory(name) for name in self._kinds],
        )

    def _turn(self, work: Callable[[Engine], T], turn: int) -> dict[str, T]:
        """All engines once; who goes first changes from turn to turn."""
        engines = list(self._engines.items())
        first = turn % len(engines)
        return {name: work(engine) for name, engine in engines[first:] + engines[:first]}

    def _peers(self) -> list[str]:
        return sorted(name for name in self._kinds if name != OURS)

    def _result(self, workload: Workload, turns: Turns[Timing], hardware: HardwareSpec) -> Result:
        rates = {
            name: tokens_per_second(workload, [turn[name] for turn in turns])
            for name in self._kinds
        }
        # Sequences of a batch start a few tokens apart in our engine, so only lone ones line up.
        comparable = workload.batch == 1
        return Result(
            workload=workload.name,
            ours=rates[OURS],
            peers={name: rates[name] for name in self._peers()},
            roofline=roofline_rate(workload, self._spec, hardware, self._info),
            same_tokens=self._same(turns, lambda timing: timing.token_ids) if comparable else None,
        )

    def _first_tokens(
        self, prompt: Prompt, turns: Turns[FirstToken], hardware: HardwareSpec
    ) -> FirstTokens:
        times = {
            name: Spread.of([1e3 * turn[name].seconds for turn in turns]) for name in self._kinds
        }
        roofline = roofline_seconds(prompt.steps, self._spec, hardware, self._info)
        return FirstTokens(
            prompt_tokens=len(prompt.token_ids),
            ours=times[OURS],
            peers={name: times[name] for name in self._peers()},
            roofline_ms=1e3 * roofline,
            same_token=self._same(turns, lambda first: first.token_id),
        )

    def _same(self, turns: Turns[T], tokens: Callable[[T], object]) -> bool | None:
        """Whether transformers took the same tokens as we did; None if it was not there."""
        name = self._lane.name_of(TRANSFORMERS)
        if name not in self._kinds:
            return None
        return all(tokens(turn[OURS]) == tokens(turn[name]) for turn in turns)

    def _memory(self, name: str) -> Memory:
        return Memory(name, self._engines[name].weight_bytes, growth(self._lane, self._kinds[name]))


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
        transformers=transformers.__version__,
        llama_cpp=llama_cpp_version(),
        bandwidth_bytes_per_s=hardware.bandwidth,
        bandwidth_range=(min(measured), max(measured)),
        flops_per_s=dict(hardware.dense_flops),
        load_before=load_before,
    )
