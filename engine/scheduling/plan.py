"""A plan says what should run in one step; a result says what came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple


class Phase(StrEnum):
    """Prefill computes prompt positions, decode one sampled token; a step may mix the two."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class SequenceShape(NamedTuple):
    """The integers of one sequence in one step: all that a cost model needs to know.

    ``prefix_tokens``: positions already in the KV cache. ``new_tokens``: positions computed in
    this step. ``samples``: whether the last position goes through the LM head to give a token.
    """

    prefix_tokens: int
    new_tokens: int
    samples: bool


class ScheduledSequence(NamedTuple):
    """One sequence of a step, with what an executor needs to run it.

    ``token_ids`` are the known tokens at positions ``start`` to ``start + len(token_ids)``;
    ``block_table`` lists the KV blocks that hold positions 0 to that end, in order; it is the
    scheduler's own list, not a copy, and holds until the step is committed.
    """

    request_id: str
    phase: Phase
    start: int
    token_ids: Sequence[int]
    block_table: Sequence[int]
    samples: bool

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def shape(self) -> SequenceShape:
        return SequenceShape(self.start, len(self.token_ids), self.samples)


@dataclass(frozen=True)
class StepPlan:
    """What one executor call runs: at least one sequence.

    ``copies`` are pairs of blocks (source, target): before anything else, the executor copies the
    contents of each source into its target. No block is both a source and a target.
    """

    step: int
    sequences: tuple[ScheduledSequence, ...]
    copies: tuple[tuple[int, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(sequence.num_tokens for sequence in self.sequences)

    @property
    def phase(self) -> Phase:
        phases = {sequence.phase for sequence in self.sequences}
        return phases.pop() if len(phases) == 1 else Phase.MIXED

    @cached_property
    def shape(self) -> tuple[SequenceShape, ...]:
        return tuple([sequence.shape for sequence in self.sequences])


class Sample(NamedTuple):
    """The token that a sequence produced. ``logprob`` is the natural logarithm of the model's own
    probability, before temperature or truncation; NaN where no distribution exists (a simulation).
    """

    request_id: str
    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave: one sample for each sequence of the plan with ``samples``.

    ``duration`` in seconds is set by executors that predict time; None lets the loop measure it.
    ``stages`` are seconds by part of the step (embed, layers, logits, sample), where measured.
    """

    samples: tuple[Sample, ...]
    duration: float | None = None
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
