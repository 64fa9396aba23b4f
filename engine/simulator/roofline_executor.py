"""The executor that predicts: it runs nothing and says how long each step would take."""

from __future__ import annotations

import math

from engine.scheduling.plan import Sample, StepPlan, StepResult
from engine.simulator.step_cost import StepCostModel

SIMULATED_TOKEN_ID = 0
"""The id of every token a simulation "samples": only how many there are has a meaning."""


class RooflineExecutor:
    """Gives each step its predicted duration, for a loop on a virtual clock."""

    def __init__(self, cost_model: StepCostModel) -> None:
        self.cost_model = cost_model

    def execute(self, plan: StepPlan) -> StepResult:
        samples = tuple(
            Sample(sequence.request_id, SIMULATED_TOKEN_ID, math.nan)
            for sequence in plan.sequences
            if sequence.samples
        )
        return StepResult(samples, duration=self.cost_model.cost(plan.shape).time)

    def release(self, request_id: str) -> None:
        """Nothing is held for a request."""
