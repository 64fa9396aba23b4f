"""Cost models with a known service time, and services made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import StepShape
from engine.simulator.serving.recorder import RequestTimes, Statistics, UnitRecorder
from engine.simulator.serving.routing import Router, Routing
from engine.simulator.serving.settings import EngineSettings
from engine.simulator.serving.simulation import Service
from engine.simulator.serving.unit import ServingUnit, make_scheduler
from engine.simulator.serving.workload import Job


class _NoMeasures:
    measures = ()

    def measure(self, shapes: Sequence[SequenceShape]) -> StepShape:
        tokens = sum(shape.new_tokens for shape in shapes)
        return StepShape(tokens, sum(shape.sampled for shape in shapes), ())


class _Cost:
    flops = bytes = 1.0

    def __init__(self, time: float, shape: StepShape) -> None:
        self.time = time
        self.shape = shape


class FakeCostModel:
    """Every step takes what ``seconds`` says of its shape."""

    step = _NoMeasures()

    def __init__(self, seconds: Callable[[StepShape], float]) -> None:
        self._seconds = seconds

    def cost(self, shapes: Sequence[SequenceShape]) -> _Cost:
        return self.cost_of(self.step.measure(shapes))

    def cost_of(self, shape: StepShape) -> _Cost:
        return _Cost(self._seconds(shape), shape)


def serve(
    jobs: Iterator[Job] | list[Job],
    seconds: Callable[[StepShape], float],
    settings: EngineSettings | None = None,
    units: int = 1,
    routing: Routing = Routing.ROUND_ROBIN,
) -> tuple[list[RequestTimes], Statistics]:
    """Serve jobs with steps of known times; the answered requests, and the statistics."""
    answered: list[RequestTimes] = []
    statistics = Statistics()
    settings = settings or EngineSettings()
    model = FakeCostModel(seconds)
    service = Service(
        [
            ServingUnit(
                place,
                make_scheduler(settings, settings.kv_blocks or 100_000, 16, 10**6),
                model,  # pyright: ignore[reportArgumentType]
                UnitRecorder(place, statistics, answered.append),
            )
            for place in range(units)
        ],
        Router(routing),
        share_prompts=settings.prefix_caching,
    )
    service.serve(iter(jobs))
    return answered, statistics


def poisson_jobs(
    rate: float, count: int, outputs: Callable[[Random], int] = lambda _: 1, seed: int = 5
) -> list[Job]:
    """Jobs with one prompt token and drawn output tokens."""
    arrivals, lengths = Random(seed), Random(seed + 1)
    time = 0.0
    jobs: list[Job] = []
    for _ in range(count):
        time += arrivals.expovariate(rate)
        jobs.append(Job(time, 1, outputs(lengths)))
    return jobs
