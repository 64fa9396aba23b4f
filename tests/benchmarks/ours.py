"""Our engine as it serves: the scheduling loop, the scheduler's blocks, the torch executor."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

from engine.inference.executor import TorchExecutor
from engine.inference.sampling import SamplingParams
from engine.scheduling.blocks import BlockPool
from engine.scheduling.events import Event, StepCompleted, TokenProduced
from engine.scheduling.loop import SchedulingLoop, WallClock
from engine.scheduling.plan import Phase
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from tests.benchmarks.workload import Timing, Workload

_GREEDY = SamplingParams(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)


@dataclass
class OurEngine:
    """Runs workloads on one executor, each on a fresh scheduler."""

    executor: TorchExecutor
    vocab_size: int
    max_context: int
    _events: list[Event] = field(default_factory=list)

    def run(self, workload: Workload) -> Timing:
        """Run one workload; a decode's prefill is not timed."""
        self._events = []
        pool = BlockPool(self.executor.num_blocks, self.executor.block_size)
        limits = SchedulerLimits(
            max_running=workload.batch, max_step_tokens=1024, max_context=self.max_context
        )
        loop = SchedulingLoop(
            Scheduler(pool, limits), self.executor, WallClock(), self._events.append
        )
        # Sequences that are prefilled first decode a few tokens while the others still wait.
        spare = workload.batch + 1
        max_tokens = workload.new_tokens + spare if workload.new_tokens else 1
        for index, prompt in enumerate(workload.prompts(self.vocab_size)):
            request_id = f"bench-{index}"
            self.executor.add_request(request_id, _GREEDY)
            loop.add(Request(request_id, tuple(prompt), max_tokens))
        seconds = self._decode(loop, workload) if workload.new_tokens else self._prefill(loop)
        for index in range(workload.batch):
            loop.abort(f"bench-{index}")
        return Timing(seconds, self._tokens(workload))

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Of each stage of a step: its median over the decode steps that were timed last."""
        steps = [event for event in self._events if isinstance(event, StepCompleted)]
        names = {name: None for step in steps for name in step.stages}
        return {
            name: statistics.median(step.stages.get(name, 0.0) for step in steps) for name in names
        }

    def _prefill(self, loop: SchedulingLoop) -> float:
        started = time.perf_counter()
        while loop.has_work:
            loop.step()
        return time.perf_counter() - started

    def _decode(self, loop: SchedulingLoop, workload: Workload) -> float:
        while not _all_decode(self._events, workload.batch):
            loop.step()
        self._events.clear()
        started = time.perf_counter()
        for _ in range(workload.new_tokens):
            loop.step()
        seconds = time.perf_counter() - started
        for event in self._events:
            if isinstance(event, StepCompleted) and event.batch != workload.batch:
                raise RuntimeError(f"a step ran {event.batch} sequences of {workload.batch}")
        return seconds

    def _tokens(self, workload: Workload) -> tuple[tuple[int, ...], ...]:
        tokens: dict[str, list[int]] = {f"bench-{index}": [] for index in range(workload.batch)}
        for event in self._events:
            if isinstance(event, TokenProduced):
                tokens[event.request_id].append(event.token_id)
        return tuple(tuple(ids) for ids in tokens.values())


def _all_decode(events: list[Event], batch: int) -> bool:
    """Whether the last step computed the last prompt token of the last sequence, or came after."""
    produced = {event.request_id for event in events if isinstance(event, TokenProduced)}
    steps = [event for event in events if isinstance(event, StepCompleted)]
    return len(produced) == batch and bool(steps) and steps[-1].phase is not Phase.MIXED
