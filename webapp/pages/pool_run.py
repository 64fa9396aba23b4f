"""A few people on a small KV cache: the engine's own scheduler, on predicted time.

Everything that the picture shows is what the scheduler and its pool of blocks did; only how long a
step takes is predicted. The real engine has a cache too large to run full before a reader's eyes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from engine.scheduling.blocks import BlockPool, blocks_for
from engine.scheduling.events import Event, RequestPreempted, RequestStarted, StepCompleted
from engine.scheduling.limits import SchedulerLimits
from engine.scheduling.loop import SchedulingLoop, VirtualClock
from engine.scheduling.plan import Phase
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler
from engine.simulator.cost_model import CostModel
from engine.simulator.deployment import Deployment
from engine.simulator.roofline_executor import RooflineExecutor
from webapp.pages.query import Knobs

NAMES = ("A", "B", "C", "D")
COMMON_TOKENS = 34
"""Prompt tokens that all begin with: two whole blocks and a bit."""
PROMPTS = (50, 44, 60, 52)
OUTPUTS = (44, 36, 40, 30)
EVERY = 5
"""Steps between two people's coming."""
LEAST_BLOCKS, MOST_BLOCKS = 7, 28
CHUNKS = (16, 32, 64, 256)
MODEL, DEVICE = "llama-3.1-8b", "h100-sxm"


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """``blocks`` of 16 positions, whether equal beginnings share theirs, tokens of a step at most,
    and the step that is looked at (from 1)."""

    blocks: int = 16
    share: bool = False
    chunk: int = 64
    at: int = 12


@dataclass(frozen=True, slots=True)
class Part:
    """What one person did in a step: ``prefill``, ``decode`` or ``recompute`` of ``tokens``."""

    phase: str
    tokens: int


@dataclass(frozen=True, slots=True)
class PoolStep:
    """One step: who computed what, whose table held which blocks, blocks that only the prefix
    cache knows, who waited, who had to yield, and what was found for whom at the start."""

    duration: float
    parts: Mapping[str, Part]
    tables: Mapping[str, tuple[int, ...]]
    cached: frozenset[int]
    waiting: tuple[str, ...]
    preempted: Mapping[str, int]
    found: Mapping[str, int]

    def owners(self, block: int) -> str:
        """The people whose tables hold that block, as letters."""
        return "".join(name for name, table in self.tables.items() if block in table)


@dataclass(slots=True)
class _Recorder:
    """Hears the loop's events and keeps a ``PoolStep`` for each step."""

    steps: list[PoolStep] = field(default_factory=list[PoolStep])
    preempted: dict[str, int] = field(default_factory=dict[str, int])
    found: dict[str, int] = field(default_factory=dict[str, int])
    scheduler: Scheduler | None = None

    def hear(self, event: Event) -> None:
        match event:
            case RequestPreempted():
                self.preempted[event.request_id] = event.lost_tokens
            case RequestStarted() if event.cached_tokens:
                self.found[event.request_id] = event.cached_tokens
            case StepCompleted():
                self._keep(event)
            case _:
                pass

    def _keep(self, event: StepCompleted) -> None:
        scheduler = self.scheduler
        if scheduler is None:
            raise AssertionError("a recorder hears nothing before it has a scheduler")
        pool, cache = scheduler.pool, scheduler.pool.prefix_cache
        idle = (b for b in range(pool.num_blocks) if cache and cache.holds(b) and pool.is_idle(b))
        running = {request.request_id: request for request in scheduler.running}
        self.steps.append(
            PoolStep(
                duration=event.duration,
                parts={
                    name: Part(_phase(running[name], phase), shape.new_tokens)
                    for name, phase, shape, _ in event.sequences
                },
                tables={name: tuple(request.block_table) for name, request in running.items()},
                cached=frozenset(idle),
                waiting=tuple(request.request_id for request in scheduler.waiting),
                preempted=self.preempted,
                found=self.found,
            )
        )
        self.preempted, self.found = {}, {}


def _phase(request: Request, phase: Phase) -> str:
    again = request.num_preemptions > 0 and phase is Phase.PREFILL
    return "recompute" if again else phase.value


@lru_cache(maxsize=1)
def _cost_model() -> CostModel:
    return Deployment(MODEL, DEVICE, times="typical").cost_model()


def read_pool_question(query: Mapping[str, str]) -> PoolQuestion:
    """The question in a query string."""
    knobs, ours = Knobs(query), PoolQuestion()
    chunk = knobs.whole("chunk", ours.chunk, CHUNKS[0], CHUNKS[-1])
    return PoolQuestion(
        blocks=knobs.whole("blocks", ours.blocks, LEAST_BLOCKS, MOST_BLOCKS),
        share=knobs.flag("share"),
        chunk=chunk if chunk in CHUNKS else ours.chunk,
        at=knobs.whole("at", ours.at, 1, 10**6),
    )


def prompt_of(index: int) -> list[int]:
    """A person's prompt as ids: what all begin with, and then something of one's own."""
    own = range(1000 * (index + 1), 1000 * (index + 1) + PROMPTS[index] - COMMON_TOKENS)
    return [*range(1, COMMON_TOKENS + 1), *own]


def run_pool(question: PoolQuestion) -> tuple[PoolStep, ...]:
    """All steps until everybody has an answer."""
    cache = PrefixCache() if question.share else None
    pool = BlockPool(question.blocks, prefix_cache=cache)
    limits = SchedulerLimits(max_running=len(NAMES), max_step_tokens=question.chunk)
    recorder = _Recorder()
    scheduler = recorder.scheduler = Scheduler(pool, limits)
    executor = RooflineExecutor(_cost_model())
    loop = SchedulingLoop(scheduler, executor, VirtualClock(), recorder.hear)
    coming = list(range(len(NAMES)))
    while coming or loop.has_work:
        due = len(recorder.steps) >= EVERY * (len(NAMES) - len(coming))
        if coming and (due or not loop.has_work):
            index = coming.pop(0)
            loop.add(Request(NAMES[index], prompt_of(index), OUTPUTS[index]))
        loop.step()
    return tuple(recorder.steps)


def blocks_of(index: int) -> int:
    """Blocks that a person's whole text takes in the end."""
    return blocks_for(PROMPTS[index] + OUTPUTS[index] - 1)
