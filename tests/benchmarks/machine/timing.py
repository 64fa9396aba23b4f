"""Times cells on the real engine: its loop, its executor, and the events of its steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.inference.executor import TorchExecutor
from engine.inference.sampling import SamplingParams
from engine.inference.step_timer import StepTimer
from engine.scheduling.blocks import BlockPool
from engine.scheduling.events import Event, StepCompleted
from engine.scheduling.loop import SchedulingLoop, WallClock
from engine.scheduling.plan import Phase, Sample, SequenceShape, StepPlan, StepResult
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from tests.benchmarks.machine.grid import MAX_STEP_TOKENS, Cell

DECODE_STEPS = 8
_WARM_UP_STEPS = 2
_STRIDE = 7_919


@dataclass(frozen=True, slots=True)
class TimedSteps:
    """Steps of one cell in the order in which they ran: their shapes, and seconds."""

    shapes: tuple[tuple[SequenceShape, ...], ...]
    seconds: tuple[float, ...]


class PromptsAreThere:
    """An executor under which prompts are in the cache already: it computes decode steps only.

    A hundred thousand prompt tokens would take minutes, and are not what is timed. The cache holds
    the keys and values of a real text, copied into every block.
    """

    def __init__(self, executor: TorchExecutor) -> None:
        self._executor = executor

    def execute(self, plan: StepPlan) -> StepResult:
        if plan.phase is Phase.DECODE:
            return self._executor.execute(plan)
        samples = [Sample(s.request_id, 0, math.nan) for s in plan.sequences if s.samples]
        return StepResult(tuple(samples))

    def release(self, request_id: str) -> None:
        self._executor.release(request_id)


class CellTimer:
    """Runs cells on one executor, each on a fresh scheduler."""

    def __init__(self, executor: TorchExecutor, vocab_size: int, max_context: int) -> None:
        self._executor = executor
        self._vocab_size = vocab_size
        self._max_context = max_context
        # Fills the cache with the keys and values of a text.
        StepTimer(executor, max_context, vocab_size).release()

    def run(self, cell: Cell) -> TimedSteps:
        """All steps of a prompt, or some decode steps."""
        decodes = cell.kind == "decode"
        events: list[Event] = []
        limits = SchedulerLimits(
            max_running=cell.batch,
            # All prompts at once, so that no sequence decodes before the others.
            max_step_tokens=cell.batch * cell.tokens if decodes else MAX_STEP_TOKENS,
            max_context=self._max_context,
        )
        executor = PromptsAreThere(self._executor) if decodes else self._executor
        pool = BlockPool(self._executor.num_blocks, self._executor.block_size)
        loop = SchedulingLoop(Scheduler(pool, limits), executor, WallClock(), events.append)
        new_tokens = 1 + _WARM_UP_STEPS + DECODE_STEPS if decodes else 1
        for index in range(cell.batch):
            name = f"cell-{index}"
            self._executor.add_request(name, SamplingParams())
            prompt = [(index + i) * _STRIDE % self._vocab_size for i in range(cell.tokens)]
            loop.add(Request(name, tuple(prompt), new_tokens, ignore_eos=True))
        while loop.has_work:
            loop.step()
        steps = [event for event in events if isinstance(event, StepCompleted)]
        timed = steps[1 + _WARM_UP_STEPS :] if decodes else steps
        return TimedSteps(
            tuple(tuple(s.shape for s in step.sequences) for step in timed),
            tuple(step.duration for step in timed),
        )
