"""A plan says what should run in one step; a result says what came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from engine.scheduling.speculation import SpeculationSettings


class Phase(StrEnum):
    """Prefill computes prompt positions, decode one sampled token; a step may mix the two."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


class SequenceShape(NamedTuple):
    """The integers of one sequence in one step: all that a cost model needs to know.

    ``prefix_tokens``: positions already in the KV cache. ``new_tokens``: positions computed in
    this step. ``samples``: whether the last position goes through the LM head to give a token.
    ``drafts``: how many of the new ones are drafts, whose positions go through it as well.
    """

    prefix_tokens: int
    new_tokens: int
    samples: bool
    drafts: int = 0

    @property
    def sampled(self) -> int:
        """Positions that go through the LM head."""
        return self.samples + self.drafts


class ScheduledSequence(NamedTuple):
    """One sequence of a step, with what an executor needs to run it.

    ``token_ids`` are the tokens at positions ``start`` to ``start + len(token_ids)``: known ones,
    and then ``num_drafts`` drafts, each ``TO_DRAFT`` if the executor is to make them itself, in the
    way of ``speculation``. ``block_table`` lists the KV blocks that hold positions 0 to that end,
    in order. ``prompt_token_ids`` and ``output_token_ids`` are the known text, for samplers that
    look back; while the output has fewer than ``masked_until`` tokens, ``masked_ids`` must not be
    sampled.

    The lists are the scheduler's own, not copies, and hold until the step is committed.
    """

    request_id: str
    phase: Phase
    start: int
    token_ids: Sequence[int]
    block_table: Sequence[int]
    samples: bool
    num_drafts: int = 0
    prompt_token_ids: Sequence[int] = ()
    output_token_ids: Sequence[int] = ()
    masked_until: int = 0
    masked_ids: frozenset[int] = frozenset()
    speculation: SpeculationSettings | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def shape(self) -> SequenceShape:
        return SequenceShape(self.start, len(self.token_ids), self.samples, self.num_drafts)

    @property
    def num_sampled(self) -> int:
        """Rows whose logits are wanted: its last ones."""
        return self.samples + self.num_drafts

    @property
    def drafts(self) -> Sequence[int]:
        """The drafts among the tokens."""
        return self.token_ids[len(self.token_ids) - self.num_drafts :]

    def with_drafts(self, drafts: Sequence[int]) -> ScheduledSequence:
        """The same known tokens with these drafts instead."""
        known = self.token_ids[: len(self.token_ids) - self.num_drafts]
        return self._replace(token_ids=[*known, *drafts], num_drafts=len(drafts))


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
    ``top``: ids and log-probabilities of the likeliest tokens, if the request asked for them.
    """

    request_id: str
    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave: a sample for each sequence of the plan with ``samples``, and one more for
    each draft that was accepted, in the order of the text.

    ``drafts``: what was drafted within the step, by request.

    ``duration`` in seconds is set by executors that predict time; None lets the loop measure it.
    ``stages`` are seconds by part of the step (embed, layers, logits, sample), where measured.
    """

    samples: tuple[Sample, ...]
    duration: float | None = None
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
    drafts: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
