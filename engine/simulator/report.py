"""What a simulation found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.simulator.assumptions import assumptions
from engine.simulator.capacity import Capacity
from engine.simulator.document import write_document
from engine.simulator.estimates import Estimates
from engine.simulator.memory import MemoryNeeds
from engine.simulator.quantity import Document
from engine.simulator.run import BatchRun
from engine.simulator.step_cost import StepCost, StepCostModel

if TYPE_CHECKING:
    from engine.simulator.question import Scenario


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """Ideal times in seconds; ``prefill`` and ``decode`` are two of the run's steps.

    ``itl`` is the mean gap between tokens, None with one output token. ``makespan`` is the time
    from the arrival of all requests to the last token. ``ideal`` and ``typical`` are the run in
    closed form; ``capacity`` is what the devices hold.
    """

    scenario: Scenario
    cost_model: StepCostModel
    memory: MemoryNeeds
    prefill: StepCost
    decode: StepCost
    ttft: float
    itl: float | None
    makespan: float
    ideal: BatchRun
    typical: Estimates
    capacity: Capacity

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of all requests over the whole run, prompts included."""
        return self.scenario.batch * self.scenario.output_tokens / self.makespan

    @property
    def fits(self) -> bool:
        """Whether the fullest device has room, all of its memory used."""
        if self.ideal.deployment.layout.stages == 1:
            return self.memory.fits
        return replace(self.capacity.placement, utilization=1.0).fits(self.capacity.load)

    @property
    def assumptions(self) -> list[str]:
        return assumptions(self)

    def to_document(self) -> Document:
        """The report as JSON values; quantities are {value, unit, kind, formula, source, label}."""
        return write_document(self)
