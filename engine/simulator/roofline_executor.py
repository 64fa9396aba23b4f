"""The executor that predicts: it runs nothing and says how long each step would take."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

from engine.scheduling.plan import Sample, ScheduledSequence, SequenceShape, StepPlan, StepResult
from engine.scheduling.speculation import TO_DRAFT
from engine.simulator.cost_model import CostModel

SIMULATED_TOKEN_ID = 0
"""The id of every token a simulation "samples": only how many there are has a meaning."""


class DraftAcceptance:
    """How many drafts turn out right: each with the same chance, up to the first that does not.

    That is the model of Leviathan et al. 2023 (arXiv 2211.17192), with ``probability`` as its α: of
    γ drafts, (1 - α^(γ+1)) / (1 - α) tokens come of a step on average. The same ``seed`` gives the
    same run.
    """

    def __init__(self, probability: float, seed: int = 0) -> None:
        """
        Raises:
            ValueError: ``probability`` is not one.
        """
        if not 0 <= probability <= 1:
            raise ValueError("the probability of acceptance is between 0 and 1")
        self.probability = probability
        self._random = random.Random(seed)

    def accepted(self, num_drafts: int) -> int:
        """How many of so many drafts of one step are accepted."""
        count = 0
        while count < num_drafts and self._random.random() < self.probability:
            count += 1
        return count


class RooflineExecutor:
    """Gives each step its predicted duration, for a loop on a virtual clock.

    ``acceptance``: of drafts, none of which are right without it. ``draft_cost_model``: of the
    model that makes drafts within the step, one after the other for all sequences together, with
    the prompts already read. Drafts that come with the plan (a look-up) cost nothing to make.

    ``beside`` are sequences that run in the next steps without being part of their plans.
    """

    def __init__(
        self,
        cost_model: CostModel,
        *,
        acceptance: DraftAcceptance | None = None,
        draft_cost_model: CostModel | None = None,
    ) -> None:
        self.cost_model = cost_model
        self.beside: Sequence[SequenceShape] = ()
        self._acceptance = acceptance or DraftAcceptance(0.0)
        self._draft_cost_model = draft_cost_model

    def execute(self, plan: StepPlan) -> StepResult:
        samples = tuple([sample for s in plan.sequences if s.samples for sample in self._sample(s)])
        drafts = {
            sequence.request_id: (SIMULATED_TOKEN_ID,) * sequence.num_drafts
            for sequence in plan.sequences
            if sequence.num_drafts and TO_DRAFT in sequence.drafts
        }
        verifying = self.cost_model.cost((*self.beside, *plan.shape)).time
        drafting = sum(self._draft_steps(plan))
        stages = {"draft": drafting} if drafts else {}
        return StepResult(samples, duration=verifying + drafting, stages=stages, drafts=drafts)

    def release(self, request_id: str) -> None:
        """Nothing is held for a request."""

    def _sample(self, sequence: ScheduledSequence) -> tuple[Sample, ...]:
        sample = Sample(sequence.request_id, SIMULATED_TOKEN_ID, math.nan)
        if not sequence.num_drafts:
            return (sample,)
        return (sample,) * (1 + self._acceptance.accepted(sequence.num_drafts))

    def _draft_steps(self, plan: StepPlan) -> Iterator[float]:
        """Seconds of each pass of the drafter, which gives one draft to each sequence."""
        if self._draft_cost_model is None:
            return
        drafting = [sequence for sequence in plan.sequences if TO_DRAFT in sequence.drafts]
        for ahead in range(max((sequence.num_drafts for sequence in drafting), default=0)):
            shapes = [
                SequenceShape(sequence.start + ahead, 1, samples=True)
                for sequence in drafting
                if sequence.num_drafts > ahead
            ]
            yield self._draft_cost_model.cost(shapes).time
