"""Measures lanes of the real engine on this machine, step by step: ``python -m engine calibrate``.

A lane is timed at a few contexts, batches and prompt lengths on each of its paths, several times
over and in turns, so that a machine that slows down slows all of them. Overheads come from a model
so small that it does little else, and the scheduling loop from the engine itself.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from engine.catalog.lane_calibration import STAGES, LaneCalibration, MeasuredStep, Overheads
from engine.catalog.this_machine import Calibration
from engine.errors import InvalidRequest
from engine.inference.calibration import measure_machine, save_with_lane
from engine.inference.device import Device, open_device
from engine.inference.engine import Engine
from engine.inference.executor import TorchExecutor
from engine.inference.lane_facts import lane_info
from engine.inference.lane_settings import KVLayout, LaneSettings, parse_lane
from engine.inference.lanes import LaneOpener
from engine.inference.loading import LoadedModel, find_model, load_model
from engine.inference.messages import Generate, Message, Step
from engine.inference.native.build import library_name
from engine.inference.native.switch import wait_for_library
from engine.inference.options import EngineOptions
from engine.inference.quantization.file_blocks import USABLE
from engine.inference.step_timer import StepTimer
from engine.inference.weights.tiny import tiny_random_checkpoint
from engine.inference.wire import encode
from engine.scheduling.scheduler import SchedulerLimits

LANES = ("float32", "bfloat16", "int8", "int4", "file")
"""What is measured if nobody chooses."""


class Point(NamedTuple):
    """A step to be timed; one that ``checks`` judges what the others give."""

    sequences: int
    prefix: int
    new: int
    checks: bool = False


DECODE_POINTS = (
    Point(1, 32, 1),
    Point(1, 512, 1),
    Point(1, 3_000, 1),
    Point(2, 128, 1),
    Point(4, 100, 1),
    Point(8, 48, 1),
    Point(8, 1_500, 1),
    Point(16, 80, 1),
    Point(24, 600, 1),
    Point(48, 128, 1),
    Point(5, 800, 1, checks=True),
    Point(12, 200, 1, checks=True),
    Point(28, 400, 1, checks=True),
)
CHUNK_POINTS = (
    Point(1, 0, 40),
    Point(1, 0, 96),
    Point(1, 1_200, 96),
    Point(1, 400, 72, checks=True),
)
PROMPT_POINTS = (
    Point(1, 0, 112),
    Point(1, 0, 200),
    Point(1, 0, 400),
    Point(1, 1_600, 400),
    Point(1, 0, 768),
    Point(1, 400, 1_024),
    Point(1, 0, 320, checks=True),
    Point(1, 600, 600, checks=True),
)

_ROUNDS = 3
_ROUNDS_OF_LONG = 2
_LONG_ROWS = 500
# A visit runs a short step some times in a row, as decoding does; the first does not count.
_IN_A_ROW = 4
_SHORT_ROWS = 100
_OVERHEAD_RUNS = 40
_OVERHEAD_ROWS = {"native": 1, "torch": 100}
_LOOP_BATCHES = (1, 8, 32)
_LOOP_STEPS = 16


def offered_lanes(options: EngineOptions) -> tuple[str, ...]:
    """The lanes that a model can have of those that are measured if nobody chooses.

    Raises:
        EngineError: there is no such model.
    """
    stored = find_model(options.model).open().source_format
    return tuple(name for name in LANES if name != "file" or stored in USABLE)


def calibrate_lanes(
    names: Sequence[str],
    options: EngineOptions,
    calibration: Calibration,
    say: Callable[[str], None],
) -> Calibration:
    """Measure lanes and keep each with the calibration of this machine as soon as it is known.

    ``calibration``: of the device that the options name. ``say`` is told what goes on.

    Raises:
        EngineError: there is no such lane, model or device, or the model cannot be had in that
            format.
        OSError: the state folder cannot be written.
    """
    for name in names:
        say(f"measuring {name}")
        lane = measure_lane(name, options)
        # What others do on the machine makes it look slower, never faster: the best rates count.
        best = calibration.with_best_rates(measure_machine(open_device(options.device)))
        calibration = save_with_lane(best, lane)
    return calibration


def measure_lane(name: str, options: EngineOptions) -> LaneCalibration:
    """Open a lane and time it; takes some ten seconds for a model of a hundred million weights.

    Raises:
        EngineError: as ``calibrate_lanes``.
    """
    settings = _measurable(name)
    wait_for_library()
    model = load_model(
        EngineOptions(
            model=options.model,
            device=options.device,
            dtypes=settings.name,
            kv_tokens=options.kv_tokens,
            calibrate="never",
        )
    )
    opened = model.lanes[0]
    executor, info = opened.executor, lane_info(opened, on_demand=False)
    return LaneCalibration(
        lane=settings.name,
        model=model.architecture,
        dtype=info.dtype,
        weight_format=info.weight_format,
        kv_format=info.kv_format,
        native_rows=executor.native_rows,
        native_library=library_name() if executor.native_rows else "",
        launch=measure_overheads(open_device(options.device)),
        between_steps={batch: _between_steps(model, batch) for batch in _LOOP_BATCHES},
        steps=_measure_steps(model, executor),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _measurable(name: str) -> LaneSettings:
    settings = parse_lane(name)
    if settings.kv.layout is KVLayout.OFF:
        raise InvalidRequest(
            "without a KV cache there are no decode steps to measure", field="kv_cache"
        )
    return settings


@dataclass(slots=True)
class _Runs:
    seconds: list[float] = field(default_factory=list[float])
    stages: list[Mapping[str, float]] = field(default_factory=list[Mapping[str, float]])


def _measure_steps(model: LoadedModel, executor: TorchExecutor) -> tuple[MeasuredStep, ...]:
    config, tokenizer = model.config, model.tokenizer
    timer = StepTimer(executor, config.max_context, tokenizer.vocab_size)
    wanted = (*DECODE_POINTS, *CHUNK_POINTS, *PROMPT_POINTS)
    points = [point for point in wanted if timer.fits(*point[:3])]
    runs = {point: _Runs() for point in points}
    for turn in range(_ROUNDS):
        for point in points:
            rows = point.sequences * point.new
            if rows <= _LONG_ROWS or turn < _ROUNDS_OF_LONG:
                _visit(timer, point, runs[point])
    timer.release()
    return tuple(_measured(point, runs[point]) for point in points)


def _visit(timer: StepTimer, point: Point, runs: _Runs) -> None:
    size = point[:3]
    short = point.sequences * point.new <= _SHORT_ROWS
    if short:
        timer.run(*size)
    for _ in range(_IN_A_ROW - 1 if short else 1):
        seconds, stages = timer.run(*size)
        runs.seconds.append(seconds)
        runs.stages.append(stages)


def _measured(point: Point, runs: _Runs) -> MeasuredStep:
    told = [stages for stages in runs.stages if stages]
    return MeasuredStep(
        sequences=point.sequences,
        prefix_tokens=point.prefix,
        new_tokens=point.new,
        seconds=tuple(runs.seconds),
        stages={name: statistics.median(stages[name] for stages in told) for name in STAGES}
        if told
        else {},
        checks=point.checks,
    )


def measure_overheads(device: Device) -> dict[str, Overheads]:
    """What a step and a layer take beside their work, by path, from the tiny random model."""
    checkpoint = tiny_random_checkpoint()
    config = checkpoint.config
    opener = LaneOpener(checkpoint, device, kv_tokens=config.max_context)
    executor = opener.open(parse_lane(device.default_dtype)).executor
    timer = StepTimer(executor, config.max_context, config.vocab_size)
    found: dict[str, Overheads] = {}
    for path, rows in _OVERHEAD_ROWS.items():
        if (path == "native") != (rows <= executor.native_rows):
            continue
        steps = [timer.run(1, 0, rows) for _ in range(_OVERHEAD_RUNS)]
        total = statistics.median(seconds for seconds, _ in steps)

        def stage(name: str, steps: Sequence[tuple[float, Mapping[str, float]]] = steps) -> float:
            return statistics.median(stages.get(name, 0.0) for _, stages in steps)

        layers = stage("layers") or total  # a GPU does not tell its stages
        rest = total - layers - stage("logits") - stage("sample")
        found[path] = Overheads(max(rest, 0.0), layers / config.num_layers)
    return found


def _between_steps(model: LoadedModel, batch: int) -> float:
    """Seconds that the engine takes between two steps of so many sequences: planning, booking,
    turning ids into text, writing messages; what the events do not count as a step's duration."""
    told: list[Message] = []

    def emit(message: Message) -> None:
        encode(message)
        told.append(message)

    limits = SchedulerLimits(
        max_running=batch, max_step_tokens=1_024, max_context=model.config.max_context
    )
    engine = Engine(model, limits, emit)
    for index in range(batch):
        generate = Generate(f"loop-{index}", prompt="Once", max_tokens=_LOOP_STEPS, ignore_eos=True)
        engine.submit(engine.prepare(generate, time.perf_counter()))
    between: list[float] = []
    while engine.has_work:
        told.clear()
        started = time.perf_counter()
        engine.step()
        seconds = time.perf_counter() - started
        steps = [message for message in told if isinstance(message, Step)]
        if steps and steps[0].batch == batch and steps[0].step_phase == "decode":
            between.append(seconds - steps[0].time_ms / 1e3)
    return statistics.median(between)
