"""``POST /api/v1/simulate``: the question, and the document that answers it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from engine.simulator.energy import IDLE_SHARE
from engine.simulator.features import (
    HOST_LINK_GB_S,
    MAX_CHUNK,
    MAX_DRAFTS,
    TRANSFER_LINK_GB_S,
)
from engine.simulator.scenario import Scenario
from webapp.schemas.base import Name, NameOrObject, OutputModel, StrictModel

_LOW = {name: low for name, (low, _) in Scenario.RANGES.items()}
_HIGH = {name: high for name, (_, high) in Scenario.RANGES.items()}

Devices = Annotated[int, Field(ge=_LOW["devices"], le=_HIGH["devices"])]
Batch = Annotated[int, Field(ge=_LOW["batch"], le=_HIGH["batch"])]
PromptTokens = Annotated[int, Field(ge=_LOW["prompt_tokens"], le=_HIGH["prompt_tokens"])]
OutputTokens = Annotated[int, Field(ge=_LOW["output_tokens"], le=_HIGH["output_tokens"])]


Groups = Annotated[int, Field(ge=_LOW["data"], le=_HIGH["data"])]
Stages = Annotated[int, Field(ge=_LOW["stages"], le=_HIGH["stages"])]
Share = Annotated[float, Field(ge=0, le=1)]
GigabytesPerSecond = Annotated[float, Field(ge=0.01, le=100_000)]


class SpeculationRequest(StrictModel):
    """Guessed tokens, verified together in one step."""

    drafts: int = Field(default=4, ge=1, le=MAX_DRAFTS, description="Guesses a step.")
    acceptance: Share = Field(default=0.7, description="Chance that a guess is right.")
    draft_model: Name | None = Field(default=None, description="An id of GET /api/v1/models.")
    draft_fraction: float = Field(
        default=0.0, ge=0, le=10, description="Cost of a guess in plain steps, without a model."
    )


class OffloadRequest(StrictModel):
    """Cached prefixes lie in the host's memory."""

    link_gb_s: GigabytesPerSecond = Field(default=HOST_LINK_GB_S, description="Of each device.")


class DisaggregationRequest(StrictModel):
    """Prompts run on a group of devices of their own; their caches travel."""

    devices: Devices | None = Field(default=None, description="Null: as many as decode.")
    link_gb_s: GigabytesPerSecond = Field(default=TRANSFER_LINK_GB_S, description="Of each device.")


class SimulateRequest(StrictModel):
    """``batch`` equal requests that arrive together."""

    model: NameOrObject = Field(
        description='An id of GET /api/v1/models, or {"config": {...}} with a config.json.'
    )
    hardware: NameOrObject = Field(
        description='An id of GET /api/v1/hardware, this-machine, or {"custom": {...}}.'
    )
    devices: Devices = Field(default=1, description="Devices that share every matrix.")
    weights: Name = Field(default="bf16", description="Number format of the weights.")
    kv: Name = Field(default="bf16", description="Number format of the KV cache.")
    activations: Name | None = Field(
        default=None, description="Number format of the activations; null follows the weights."
    )
    batch: Batch = 1
    prompt_tokens: PromptTokens = 512
    output_tokens: OutputTokens = 128
    data: Groups = Field(default=1, description="Groups of devices, each with its own requests.")
    stages: Stages = Field(default=1, description="Devices that hold the layers in turn.")
    experts: bool = Field(default=False, description="Groups share out the routed experts.")
    imbalance: float = Field(
        default=1.0, ge=1, le=1000, description="The busiest group's work of experts over the mean."
    )
    per_node: Devices | None = Field(default=None, description="Devices of a node; null: all.")
    network_gb_s: GigabytesPerSecond | None = Field(
        default=None, description="Each device's way to other nodes; null: 50."
    )
    engine: Name | None = Field(default=None, description="Serving engine of typical times.")
    memory_utilization: float = Field(default=0.9, ge=0.01, le=1)
    chunk_tokens: int | None = Field(
        default=None, ge=1, le=MAX_CHUNK, description="Prompt tokens a step; null: whole prompts."
    )
    prefix_hit_rate: Share = Field(default=0.0, description="Share of a prompt in the cache.")
    speculation: SpeculationRequest | None = None
    offload: OffloadRequest | None = None
    disaggregation: DisaggregationRequest | None = None
    usd_per_hour: float | None = Field(
        default=None, ge=0, le=10_000, description="Of one device; null: the catalogue's."
    )
    idle_share: Share = Field(default=IDLE_SHARE, description="Power at rest, as a share of TDP.")

    def to_scenario(self) -> Scenario:
        """The engine's question.

        Raises:
            InvalidRequest: the numbers do not go together, or an object is not understood.
        """
        return Scenario.from_document(self.model_dump())


class Quantity(OutputModel):
    """A predicted number with where it came from; ``value`` is null where nothing is predicted."""

    value: int | float | bool | str | None
    unit: str
    kind: Literal["predicted"]
    formula: str
    source: str
    label: str


class Estimate(Quantity):
    """A typical value: eight of ten measurements of its kind lay between ``p10`` and ``p90``."""

    p10: float | None = None
    p90: float | None = None


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


class RunDocument(OutputModel):
    """The whole batch in closed form, ideal or typical, with what its times are made of."""

    model_config = ConfigDict(extra="allow")

    ttft: Estimate
    tpot: Estimate
    e2e: Estimate
    tokens_per_s: Estimate
    parts: dict[str, Quantity]
    cost: dict[str, dict[str, object]]
    energy: dict[str, dict[str, object]]


class LimitsDocument(OutputModel):
    """What the fullest device holds, and the largest batch and longest context that fit."""

    usable: Quantity
    needed: Quantity
    weights: Quantity
    cache_per_request: Quantity
    activations: Quantity
    fits: Quantity
    largest_batch: Quantity
    longest_context: Quantity


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
    ideal: RunDocument
    typical: RunDocument
    limits: LimitsDocument
