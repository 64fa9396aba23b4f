"""Runs a service from the first arrival to the last answer.

    result = simulate_serving(scenario)
    result.ttft.percentile(95), result.itl.mean, result.goodput, result.to_document()

Time goes on unit by unit: the one that is furthest behind runs its next steps, up to the next
arrival. An arrival during a step waits in the queue from then on and can join the next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from engine.scheduling.request import Request
from engine.simulator.run import first_token_overhead
from engine.simulator.serving.arrivals import ClosedLoop
from engine.simulator.serving.prompts import ID_SPACE, PromptTokens
from engine.simulator.serving.recorder import RequestTimes, Statistics, UnitRecorder
from engine.simulator.serving.result import ServingResult
from engine.simulator.serving.routing import Router
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.unit import EventListener, ServingUnit, make_scheduler
from engine.simulator.serving.workload import Job

Progress = Callable[[int, float], None]
"""Is told now and then how many requests are answered and the time of the run in seconds."""

REPORT_EVERY = 256
"""Arrivals between two reports of progress."""


def simulate_serving(
    scenario: ServingScenario,
    progress: Progress | None = None,
    *,
    on_request: Callable[[RequestTimes], None] | None = None,
    on_event: EventListener | None = None,
    step_by_step: bool = False,
) -> ServingResult:
    """Serve the workload to its end.

    ``on_request`` is told of every answered request, ``on_event`` of every event of every unit's
    scheduling loop. Listening to events, or ``step_by_step``, runs each step by itself: that takes
    several times as long and changes nothing in the result.

    Raises:
        InvalidRequest, UnknownName: the deployment is wrong, or has no room for a cache.
        UnsupportedModel: the model has a part that is not simulated (field "model").
    """
    cost_model = scenario.deployment.cost_model()
    kv_blocks = scenario.kv_blocks()
    statistics = Statistics(scenario.slo)
    context = cost_model.model.max_context
    units = [
        ServingUnit(
            place,
            make_scheduler(scenario.engine, kv_blocks, scenario.deployment.block_size, context),
            cost_model,
            UnitRecorder(place, statistics, on_request),
            on_event,
            step_by_step=step_by_step,
        )
        for place in range(scenario.units)
    ]
    service = Service(
        units,
        Router(scenario.routing),
        first_token_overhead(cost_model),
        share_prompts=scenario.engine.prefix_caching,
    )
    jobs = scenario.workload.jobs(scenario.seed)
    clients = scenario.workload.closed_loop
    if clients is None:
        service.serve(jobs, progress)
    else:
        service.serve_clients(jobs, clients, Random(f"{scenario.seed}/think"), progress)
    return ServingResult.of(scenario, cost_model, kv_blocks, statistics, [u.metered for u in units])


@dataclass(slots=True)
class Service:
    """Units behind a router. ``overhead``: seconds from an arrival until the engine has it.

    With ``share_prompts`` prompts have ids, for a prefix cache to find; without, only lengths.
    """

    units: Sequence[ServingUnit]
    router: Router
    overhead: float = 0.0
    share_prompts: bool = False
    _arrived: int = 0

    def serve(self, jobs: Iterator[Job], progress: Progress | None = None) -> None:
        """Serve requests that come whatever the service does, in order of arrival."""
        units = self.units
        for job in jobs:
            time = job.arrival or 0.0
            request = self._request(job)
            if self.router.looks:
                for unit in units:
                    unit.run(time + self.overhead)
            unit = units[self.router.choose(units, request, time)]
            unit.run(time + self.overhead)
            unit.take(request, time, self.overhead)
            self._report(progress, time)
        for unit in units:
            unit.run(math.inf)

    def serve_clients(
        self,
        jobs: Iterator[Job],
        clients: ClosedLoop,
        random: Random,
        progress: Progress | None = None,
    ) -> None:
        """Serve clients that each wait for their answer, think and ask again, until no job is left.

        Who asks next depends on who is answered first, so units go on together.
        """
        asking: list[float] = [0.0] * clients.clients  # a heap: all equal
        job = next(jobs, None)
        while job is not None:
            busy = [unit for unit in self.units if unit.has_work]
            behind = min(busy, key=lambda unit: unit.now, default=None)
            if asking and (behind is None or asking[0] + self.overhead <= behind.now):
                time = heappop(asking)
                request = self._request(job)
                unit = self.units[self.router.choose(self.units, request, time)]
                if not unit.take(request, time, self.overhead):
                    heappush(asking, time + clients.think(random))
                self._report(progress, time)
                job = next(jobs, None)
                continue
            if behind is None:
                raise AssertionError("nobody asks and nobody is being answered")
            others = min((u.now for u in busy if u is not behind), default=math.inf)
            for time in behind.run(self._horizon(asking, behind.now, others), one_end=True):
                heappush(asking, time + clients.think(random))
        for unit in self.units:
            unit.run(math.inf)

    def _horizon(self, asking: Sequence[float], now: float, others: float) -> float:
        """Time up to which a unit may run: the next question, or when another unit may answer.

        A unit that is not ahead of the others may always run the step that it is about to.
        """
        horizon = min(others, asking[0] + self.overhead) if asking else others
        return max(horizon, math.nextafter(now, math.inf))

    def _request(self, job: Job) -> Request:
        index = self._arrived
        self._arrived += 1
        prompt: Sequence[int] = range(job.prompt_tokens)
        if self.share_prompts:
            own = -(index + 1) * ID_SPACE
            left = job.prompt_tokens - sum(map(len, job.shared))
            parts = (*job.shared, range(own, own + left)) if left else job.shared
            prompt = PromptTokens(parts, own - 1)
        return Request(str(index), prompt, job.output_tokens)

    def _report(self, progress: Progress | None, time: float) -> None:
        if progress is not None and self._arrived % REPORT_EVERY == 0:
            live = sum(unit.recorder.num_live for unit in self.units)
            progress(self._arrived - live, time)
