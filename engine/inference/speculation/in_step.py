"""Drafts that a model makes, as the first part of the step that verifies them.

A draft is sampled as the token itself will be, with the request's own parameters and the number
that belongs to its position. So a drafter whose distribution is that of the model agrees with it
always, not only where requests are greedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from engine.inference.model_steps import ModelSteps, StepLogits
from engine.scheduling.plan import ScheduledSequence, StepPlan
from engine.scheduling.speculation import TO_DRAFT, SpeculationMethod

SampleNext = Callable[[StepLogits, Sequence[ScheduledSequence]], list[int]]
"""Tokens from logits: for each sequence the one after its known tokens and drafts."""


class StepDrafter(Protocol):
    """``draft`` guesses up to ``num_drafts`` tokens for each sequence, whose one known token is the
    last of its text."""

    def draft(
        self, sequences: Sequence[ScheduledSequence], sample: SampleNext
    ) -> list[list[int]]: ...

    def release(self, request_id: str) -> None: ...


def fill_in_drafts(
    plan: StepPlan, drafters: Mapping[SpeculationMethod, StepDrafter], sample: SampleNext
) -> tuple[StepPlan, dict[str, list[int]]]:
    """The plan with all drafts known, and those that were made for it, by request."""
    wanted: dict[SpeculationMethod, list[ScheduledSequence]] = {}
    for sequence in plan.sequences:
        if sequence.num_drafts and sequence.drafts[0] == TO_DRAFT:
            if sequence.speculation is None:
                raise ValueError("drafts are to be made and it is not said how")
            wanted.setdefault(sequence.speculation.method, []).append(sequence)
    if not wanted:
        return plan, {}
    drafts: dict[str, list[int]] = {}
    for method, sequences in wanted.items():
        made = drafters[method].draft(sequences, sample)
        drafts |= {s.request_id: tokens for s, tokens in zip(sequences, made, strict=True)}
    filled = tuple(
        s.with_drafts(drafts[s.request_id]) if s.request_id in drafts else s for s in plan.sequences
    )
    return replace(plan, sequences=filled), drafts


def draft_with(
    model: ModelSteps,
    feeds: Sequence[ScheduledSequence],
    sequences: Sequence[ScheduledSequence],
    sample: SampleNext,
    *,
    num_layers: int | None = None,
) -> list[list[int]]:
    """Let a model guess tokens one after the other, for all sequences together.

    ``feeds``: for each sequence, the known tokens that the model has still to read, with the blocks
    of its own cache. ``num_layers``: of the model, all if None.
    """
    drafts: dict[str, list[int]] = {sequence.request_id: [] for sequence in sequences}
    ahead = [
        (feed._replace(num_drafts=0, samples=True), sequence)
        for feed, sequence in zip(feeds, sequences, strict=True)
    ]
    while ahead:
        step = model.logits(StepPlan(0, tuple(feed for feed, _ in ahead)), num_layers)
        texts = {s.request_id: s.with_drafts(drafts[s.request_id]) for _, s in ahead}
        tokens = sample(step, [texts[feed.request_id] for feed in step.sampled])
        for feed, token in zip(step.sampled, tokens, strict=True):
            drafts[feed.request_id].append(token)
        ahead = [
            (feed._replace(start=feed.start + feed.num_tokens, token_ids=made[-1:]), sequence)
            for feed, sequence in ahead
            if len(made := drafts[feed.request_id]) < sequence.num_drafts
        ]
    return [drafts[sequence.request_id] for sequence in sequences]
