"""``POST /api/v1/simulate``: the question, and the document that answers it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from engine.simulator.scenario import Scenario
from webapp.schemas.base import Name, OutputModel, StrictModel

_LOW = {name: low for name, (low, _) in Scenario.RANGES.items()}
_HIGH = {name: high for name, (_, high) in Scenario.RANGES.items()}

Devices = Annotated[int, Field(ge=_LOW["devices"], le=_HIGH["devices"])]
Batch = Annotated[int, Field(ge=_LOW["batch"], le=_HIGH["batch"])]
PromptTokens = Annotated[int, Field(ge=_LOW["prompt_tokens"], le=_HIGH["prompt_tokens"])]
OutputTokens = Annotated[int, Field(ge=_LOW["output_tokens"], le=_HIGH["output_tokens"])]


class SimulateRequest(StrictModel):
    """``batch`` equal requests that arrive together, on ``devices`` equal devices."""

    model: Name = Field(description="An id of GET /api/v1/models.")
    hardware: Name = Field(description="An id of GET /api/v1/hardware, or this-machine.")
    devices: Devices = 1
    weights: Name = Field(default="bf16", description="Number format of the weights.")
    kv: Name = Field(default="bf16", description="Number format of the KV cache.")
    activations: Name | None = Field(
        default=None, description="Number format of the activations; null follows the weights."
    )
    batch: Batch = 1
    prompt_tokens: PromptTokens = 512
    output_tokens: OutputTokens = 128

    def to_scenario(self) -> Scenario:
        """The engine's question.

        Raises:
            InvalidRequest: the numbers are too large together.
        """
        return Scenario(
            model=self.model,
            hardware=self.hardware,
            devices=self.devices,
            weights=self.weights,
            kv=self.kv,
            batch=self.batch,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            activations=self.activations,
        )


class Quantity(OutputModel):
    """A predicted number with where it came from; ``value`` is null where nothing is predicted."""

    value: int | float | bool | str | None
    unit: str
    kind: Literal["predicted"]
    formula: str
    source: str
    label: str


class OperatorCost(OutputModel):
    """One operator of a step, as one device runs it."""

    model_config = ConfigDict(extra="allow")

    name: str
    bound: Quantity
    flops: Quantity
    bytes: Quantity
    intensity: Quantity
    time: Quantity


class StepCostDocument(OutputModel):
    """One step: prefill of all prompts, or the decode step in the middle of the run."""

    model_config = ConfigDict(extra="allow")

    bound: Quantity
    flops: Quantity
    bytes: Quantity
    intensity: Quantity
    time: Quantity
    operators: list[OperatorCost]


class MemoryDocument(OutputModel):
    """What has to be held, and whether the devices can."""

    model_config = ConfigDict(extra="allow")

    weights: Quantity
    kv_cache: Quantity
    kv_bytes_per_token: Quantity
    activations: Quantity
    total: Quantity
    capacity: Quantity
    fits: Quantity


class SimulationDocument(OutputModel):
    """The answer; the same document as ``python -m engine simulate --json``."""

    model_config = ConfigDict(extra="allow")

    scenario: dict[str, object]
    model: dict[str, object]
    hardware: dict[str, object]
    formats: dict[str, object]
    assumptions: list[str]
    ttft: Quantity
    itl: Quantity
    tokens_per_s: Quantity
    memory: MemoryDocument
    prefill: StepCostDocument
    decode: StepCostDocument
    ridge_point: Quantity
