"""What a simulation found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.simulator.assumptions import assumptions
from engine.simulator.document import write_document
from engine.simulator.memory import MemoryNeeds
from engine.simulator.quantity import Document
from engine.simulator.step_cost import StepCost, StepCostModel

if TYPE_CHECKING:
    from engine.simulator.scenario import Scenario


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """Times in seconds from the loop's events; ``prefill`` and ``decode`` are two of its steps.

    ``itl`` is the mean gap between tokens, None with one output token. ``makespan`` is the time
    from the arrival of all requests to the last token.
    """

    scenario: Scenario
    cost_model: StepCostModel
    memory: MemoryNeeds
    prefill: StepCost
    decode: StepCost
    ttft: float
    itl: float | None
    makespan: float

    @property
    def tokens_per_s(self) -> float:
        """Output tokens of all requests over the whole run, prompts included."""
        return self.scenario.batch * self.scenario.output_tokens / self.makespan

    @property
    def assumptions(self) -> list[str]:
        return assumptions(self)

    def to_document(self) -> Document:
        """The report as JSON values; quantities are {value, unit, kind, formula, source, label}."""
        return write_document(self)
