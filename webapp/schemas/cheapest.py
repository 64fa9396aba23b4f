"""``POST /api/v1/search``: a load with limits, and the deployments that keep them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from engine.simulator.efficiency import DEFAULT_ENGINE
from engine.simulator.search.cheapest import Requirement
from webapp.schemas.base import Name, OutputModel, StrictModel
from webapp.schemas.simulate import Devices, OutputTokens, PromptTokens

MAX_HARDWARE = 128
MAX_FINALISTS = 3

Positive = Annotated[float, Field(gt=0, lt=1e6)]
Formats = Annotated[list[Name], Field(min_length=1, max_length=Requirement.MAX_CHOICES)]


class SearchRequest(StrictModel):
    """Requests/s of one length, and the most that the means of TTFT and ITL may be, in s."""

    model: Name = Field(description="An id of GET /api/v1/models.")
    rate: Positive = Field(description="Requests/s.")
    prompt_tokens: PromptTokens = 512
    output_tokens: OutputTokens = 128
    ttft: Positive
    itl: Positive
    hardware: list[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_HARDWARE,
        description="Ids of GET /api/v1/hardware; null takes every device that has a price.",
    )
    devices: list[Devices] = Field(
        default=[1, 2, 4, 8], min_length=1, max_length=Requirement.MAX_CHOICES
    )
    weights: Formats = Field(default=["bf16", "fp8"])
    kv: Formats = Field(default=["bf16"])
    times: Literal["ideal", "typical"] = "typical"
    engine: Name = DEFAULT_ENGINE
    max_replicas: int = Field(default=64, ge=1, le=256)
    memory_utilization: float = Field(default=0.9, gt=0, le=1)
    finalists: int = Field(
        default=1, ge=0, le=MAX_FINALISTS, description="How many to confirm by a simulated run."
    )


class CandidateDocument(OutputModel):
    """Times in s, null where the load is not carried; ``fails`` says which limit is missed."""

    model_config = ConfigDict(extra="allow")

    hardware: str
    devices: int
    weights: str
    kv: str
    replicas: int
    usd_per_hour: float | None
    ttft: float | None
    itl: float | None
    batch: float | None
    max_batch: int
    fails: str | None


class FrontDocument(OutputModel):
    """Output tokens/s per device against ITL in s."""

    hardware: str
    devices: int
    weights: str
    kv: str
    batch: int
    itl: float
    tokens_per_s_per_device: float


class SearchDocument(OutputModel):
    """The answer; the same document as ``python -m engine search --json``."""

    requirement: dict[str, object]
    kind: Literal["predicted"]
    found: int
    best: list[CandidateDocument]
    missed: int
    failed: list[CandidateDocument]
    front: list[FrontDocument]
    assumptions: list[str]
