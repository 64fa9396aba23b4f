"""What the loop tells: the only source of metrics for pages, exports, Prometheus and tests.

Times are seconds on the loop's clock. Every event is frozen and belongs to one loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.scheduling.limits import SchedulerLimits
from engine.scheduling.plan import Phase, SequenceShape
from engine.scheduling.request import FinishReason


@dataclass(frozen=True, slots=True)
class RequestQueued:
    """A request was taken in. ``position`` is its place in the queue, 1 for the next to run.

    ``forked_from``: the request whose text it continues in its own way.
    """

    time: float
    request_id: str
    position: int
    prompt_tokens: int
    forked_from: str | None = None


@dataclass(frozen=True, slots=True)
class RequestStarted:
    """A waiting request got its first blocks and joins the next step.

    It need not compute ``cached_tokens`` positions that the prefix cache held, or
    ``forked_tokens`` that it shares with the request it was forked from. It tells so again each
    time it starts anew after a preemption.
    """

    time: float
    request_id: str
    waited: float
    cached_tokens: int = 0
    forked_tokens: int = 0


class SequenceStep(NamedTuple):
    """One request's part in a step. ``kv_blocks`` is the length of its block table after it."""

    request_id: str
    phase: Phase
    shape: SequenceShape
    kv_blocks: int


@dataclass(frozen=True, slots=True)
class StepCompleted:
    """One executor call over a batch. ``time`` is its start, ``duration`` its length.

    ``kv_blocks_used`` are in some block table, ``kv_blocks_cached`` are not but could be reused by
    the text they hold; ``kv_blocks_copied`` were copied before the step, for forks. All are those
    of the step itself. ``kv_blocks_total`` is what may be used, which ``Configured`` can change.
    """

    time: float
    step: int
    duration: float
    phase: Phase
    sequences: tuple[SequenceStep, ...]
    stages: Mapping[str, float]
    kv_blocks_used: int
    kv_blocks_total: int
    num_running: int
    num_waiting: int
    kv_blocks_cached: int = 0
    kv_blocks_copied: int = 0

    @property
    def batch(self) -> int:
        return len(self.sequences)

    @property
    def num_tokens(self) -> int:
        return sum(sequence.shape.new_tokens for sequence in self.sequences)


@dataclass(frozen=True, slots=True)
class DraftsVerified:
    """A step has compared drafts with samples; told before the tokens.

    Of the ``proposed`` ids the first ``num_accepted`` are the tokens that were sampled in their
    places. They are the next tokens of the text, as far as it does not end among them.
    """

    time: float
    request_id: str
    proposed: tuple[int, ...]
    num_accepted: int


@dataclass(frozen=True, slots=True)
class TokenProduced:
    """``index`` counts a request's output tokens from 0. ``logprob`` and ``top``: see ``Sample``.

    Tokens that one step gave, through accepted drafts, share its end as their time.
    """

    time: float
    request_id: str
    index: int
    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestPreempted:
    """Its blocks went to others; it waits at the head of the queue and recomputes later."""

    time: float
    request_id: str
    lost_tokens: int


@dataclass(frozen=True, slots=True)
class RequestFinished:
    time: float
    request_id: str
    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Configured:
    """From now on the scheduler gives so much. ``policy`` is its name."""

    time: float
    limits: SchedulerLimits
    policy: str
    usable_blocks: int


Event = (
    RequestQueued
    | RequestStarted
    | StepCompleted
    | DraftsVerified
    | TokenProduced
    | RequestPreempted
    | RequestFinished
    | Configured
)
