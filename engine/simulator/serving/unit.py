"""One scheduler with its devices: a data-parallel group of a replica, on a virtual clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from engine.errors import CapacityError
from engine.scheduling.blocks import BlockPool
from engine.scheduling.events import Event, RequestFinished
from engine.scheduling.limits import SchedulerLimits
from engine.scheduling.loop import SchedulingLoop, VirtualClock
from engine.scheduling.plan import SequenceShape
from engine.scheduling.policies import POLICIES
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import FinishReason, Request
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.sharing import take_over
from engine.simulator.cost_model import CostModel
from engine.simulator.roofline_executor import SIMULATED_TOKEN_ID, RooflineExecutor
from engine.simulator.serving.metering import MeteredCostModel
from engine.simulator.serving.recorder import UnitRecorder
from engine.simulator.serving.settings import UNLIMITED_WAITING, EngineSettings
from engine.simulator.serving.stretch import price_stretch

MOST_STEPS = 4096
"""Steps of a stretch: what is kept of each of them until it is told takes memory."""

EventListener = Callable[[int, Event], None]
"""Is told of the place of a unit and of each event of its loop."""


def make_scheduler(
    settings: EngineSettings, kv_blocks: int, block_size: int, max_context: int
) -> Scheduler:
    """The scheduler of one unit, as the engine's settings want it."""
    cache = PrefixCache() if settings.prefix_caching else None
    limits = SchedulerLimits(
        max_running=settings.max_running,
        max_waiting=UNLIMITED_WAITING,
        max_step_tokens=settings.max_step_tokens,
        max_context=max_context,
        split_prompts=settings.chunked_prefill,
    )
    pool = BlockPool(kv_blocks, block_size, prefix_cache=cache)
    return Scheduler(pool, limits, POLICIES[settings.policy]())


class ServingUnit:
    """Runs the scheduling loop over the requests that it is given.

    ``on_event`` is told of every event, which takes every step by itself. Without it, stretches of
    plain decoding are taken in one go, unless ``step_by_step`` forbids it; the results are equal.
    """

    def __init__(
        self,
        place: int,
        scheduler: Scheduler,
        cost_model: CostModel,
        recorder: UnitRecorder,
        on_event: EventListener | None = None,
        *,
        step_by_step: bool = False,
    ) -> None:
        self.place = place
        self.scheduler = scheduler
        self.recorder = recorder
        self.clock = VirtualClock()
        self.metered = MeteredCostModel(cost_model)
        self._ends: list[float] = []
        self._on_event = on_event
        self._fast = not step_by_step and on_event is None
        # Who ends first of those that end together matters to nothing but a prefix cache.
        self._may_plan_beside = (
            scheduler.limits.split_prompts and scheduler.pool.prefix_cache is None
        )
        self._executor = RooflineExecutor(self.metered)
        self.loop = SchedulingLoop(scheduler, self._executor, self.clock, self._hear)

    def _hear(self, event: Event) -> None:
        self.recorder.hear(event)
        if type(event) is RequestFinished:
            self._ends.append(event.time)
        if self._on_event is not None:
            self._on_event(self.place, event)

    @property
    def now(self) -> float:
        return self.clock.now()

    @property
    def has_work(self) -> bool:
        return self.loop.has_work

    def in_flight(self, time: float) -> int:
        """Requests that were sent here and have no answer yet at that time.

        A step that runs at that time has been simulated to its end: what ended with it is counted.
        """
        ahead = len(self._ends) - bisect_right(self._ends, time)
        return self.recorder.num_live + ahead

    def known_tokens(self, request: Request) -> int:
        """Positions of the prompt that the prefix cache holds."""
        return take_over(request, self.scheduler.pool).num_tokens

    def take(self, request: Request, arrival: float, overhead: float) -> bool:
        """Queue a request that came at ``arrival`` and reaches the engine ``overhead`` later.

        False if it can never fit: it is refused then, as the engine would.
        """
        reached = arrival + overhead
        del self._ends[: bisect_right(self._ends, arrival)]  # arrivals never go back in time
        if not self.has_work and self.now < reached:
            self.clock.advance_to(reached)
        self.recorder.expect(request.request_id, arrival)
        try:
            self.loop.add(request, arrived=reached)
        except CapacityError:
            self.recorder.refuse(request.request_id)
            return False
        return True

    def run(self, until: float, *, one_end: bool = False) -> list[float]:
        """Run every step that starts before ``until``; with ``one_end`` up to somebody's end.

        Returns the times at which requests ended meanwhile.
        """
        ended = len(self._ends)
        while self.loop.has_work and self.clock.now() < until:
            steps = min(self.scheduler.uniform_steps(), MOST_STEPS) if self._fast else 0
            starts = steps > 0 and self.scheduler.could_start()
            if steps > 0 and not starts:
                self._run_stretch(steps, until)
            elif starts and self._may_plan_beside:
                self._run_beside()
            elif not self.loop.step():
                raise AssertionError("requests wait and none of them can ever run")
            if one_end and len(self._ends) > ended:
                break
        return self._ends[ended:]

    def _run_beside(self) -> None:
        """Run a step in which requests start beside others that all decode."""
        decoding = list(self.scheduler.running)
        self._executor.beside = [SequenceShape(r.num_computed_tokens, 1, True) for r in decoding]
        self.recorder.beside = len(decoding)
        if not self.loop.step(beside=True):
            raise AssertionError("nobody started where somebody could")
        self._executor.beside = ()
        self.recorder.beside = 0
        self.recorder.tokens([request.request_id for request in decoding], self.clock.now())
        for request in self.scheduler.advance(1, SIMULATED_TOKEN_ID, decoding):
            self.loop.finish(request.request_id, FinishReason.LENGTH)

    def _run_stretch(self, steps: int, until: float) -> None:
        scheduler, running = self.scheduler, self.scheduler.running
        contexts = [request.num_computed_tokens for request in running]
        stretch = price_stretch(self.metered, contexts, steps, self.clock.now(), until)
        steps = len(stretch.ends)
        blocks_used = self._blocks_used(contexts, steps)
        ids = [request.request_id for request in running]
        waiting = len(scheduler.waiting)
        ended = scheduler.advance(steps, SIMULATED_TOKEN_ID)
        self.clock.advance_to(stretch.ends[-1])
        self.metered.count(stretch.shapes)
        self.recorder.stretch(stretch, ids, waiting, blocks_used)
        for request in ended:
            self.loop.finish(request.request_id, FinishReason.LENGTH)

    def _blocks_used(self, contexts: Sequence[int], steps: int) -> list[int]:
        """Blocks in use during each of the coming steps."""
        pool = self.scheduler.pool
        size = pool.block_size
        new = [0] * steps
        for request, context in zip(self.scheduler.running, contexts, strict=True):
            for step in range(len(request.block_table) * size - context, steps, size):
                new[step] += 1
        used = pool.num_used
        totals: list[int] = []
        for count in new:
            used += count
            totals.append(used)
        return totals
