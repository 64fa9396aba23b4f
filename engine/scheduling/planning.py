"""A plan in the making: who runs, what is copied, and which changes of state that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan
from engine.scheduling.request import Request


@dataclass(frozen=True, slots=True)
class Started:
    """A request that joins the next step, and the positions that it need not compute."""

    request: Request
    cached_tokens: int
    forked_tokens: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with the changes of state that planning it made."""

    plan: StepPlan | None
    started: tuple[Started, ...]
    preempted: tuple[tuple[Request, int], ...]


@dataclass(slots=True)
class Planning:
    """``budget``: tokens that the step can still take. ``copies``: source blocks by targets."""

    budget: int
    sequences: list[ScheduledSequence] = field(default_factory=list[ScheduledSequence])
    copies: dict[int, int] = field(default_factory=dict[int, int])
    started: list[Started] = field(default_factory=list[Started])
    preempted: list[tuple[Request, int]] = field(default_factory=list[tuple[Request, int]])

    def schedule(self, request: Request, start: int, end: int) -> None:
        """Let a request's known tokens at these positions run in the step."""
        self.budget -= end - start
        decodes = end - start == 1 and start >= len(request.prompt_token_ids)
        self.sequences.append(
            ScheduledSequence(
                request.request_id,
                Phase.DECODE if decodes else Phase.PREFILL,
                start,
                request.known_slice(start, end),
                request.block_table,
                end == request.num_known_tokens,
                0,
                request.prompt_token_ids,
                request.output_token_ids,
                0 if request.ignore_eos else request.min_tokens,
                request.stop_token_ids,
                request.speculation,
            )
        )

    def add_drafts(self, index: int, drafts: Sequence[int]) -> None:
        """Let drafts run after the known tokens of a sequence."""
        self.budget -= len(drafts)
        self.sequences[index] = self.sequences[index].with_drafts(drafts)

    def copy(self, source: int, target: int) -> None:
        """Copy a block before the step.

        The source may itself be the target of a copy of this step: then both have one source, so
        that the order of copies does not matter.
        """
        self.copies[target] = self.copies.get(source, source)

    def finish(self, step: int) -> Planned:
        """The plan, as the step of that number."""
        plan = None
        if self.sequences:
            copies = tuple((source, target) for target, source in self.copies.items())
            plan = StepPlan(step, tuple(self.sequences), copies)
        return Planned(plan, tuple(self.started), tuple(self.preempted))
