"""``POST /api/v1/diagnose``: what was measured, and what it means."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine.simulator.diagnosis.diagnose import MAX_OBSERVATIONS
from engine.simulator.search.cell import Cell
from webapp.schemas.base import OutputModel, StrictModel
from webapp.schemas.search import SweepCell
from webapp.schemas.simulate import Batch, OutputTokens, PromptTokens

_CONTEXT = Cell.RANGES["context_tokens"]

Measured = Annotated[float, Field(gt=0, lt=1e6)]


class MeasuredTimes(StrictModel):
    """Times in s; what is null was not measured, or is as in ``cell``."""

    ttft: Measured | None = Field(default=None, description="To the first token.")
    itl: Measured | None = Field(default=None, description="Mean gap between tokens.")
    itl_p99: Measured | None = Field(default=None, description="99th percentile of the gaps.")
    queue: Annotated[float, Field(ge=0, lt=1e6)] | None = Field(
        default=None, description="Before a request's first step."
    )
    tokens_per_s: Measured | None = Field(
        default=None, description="Output tokens of all requests under way."
    )
    together: bool = Field(default=False, description="All requests arrived at once.")
    batch: Batch | None = None
    prompt_tokens: PromptTokens | None = None
    output_tokens: OutputTokens | None = None
    context_tokens: int | None = Field(default=None, ge=_CONTEXT[0], le=_CONTEXT[1])


class DiagnoseRequest(StrictModel):
    """One deployment, and one or more measurements; the first is explained."""

    cell: SweepCell = Field(description="The run; its times are always compared with typical ones.")
    observations: list[MeasuredTimes] = Field(min_length=1, max_length=MAX_OBSERVATIONS)


class Seconds(OutputModel):
    value: float | None
    unit: Literal["s"]
    kind: Literal["measured", "predicted"]


class TypicalSeconds(Seconds):
    p10: float | None
    p90: float | None


class PartOfTime(Seconds):
    cause: str


class PhaseDocument(OutputModel):
    """One measured time beside its predictions, and what takes the typical one."""

    measured: Seconds
    ideal: Seconds
    typical: TypicalSeconds
    over_ideal: float | None
    over_typical: float | None
    slow: bool
    bound: str
    parts: list[PartOfTime]


class CauseDocument(OutputModel):
    """``probability`` of a deviation's cause, or ``share`` of the usual time."""

    name: str
    words: str
    evidence: str
    probability: float | None
    share: float | None


class RemedyDocument(OutputModel):
    """A change, the times that it would give, and the seconds that it saves of ``saves_of``."""

    name: str
    words: str
    ttft: float | None
    itl: float | None
    saves: float
    saves_of: str
    unit: Literal["s"]
    kind: Literal["predicted"]
    fits: bool


class SlopeDocument(OutputModel):
    """d ln(metric) / d ln(knob) of the typical times: -0.9 means 1% more takes 0.9% away."""

    metric: Literal["ttft", "itl"]
    knob: str
    elasticity: float
    kind: Literal["predicted"]
    formula: str


class DiagnosisDocument(OutputModel):
    """The answer; the same document as ``python -m engine diagnose --json``."""

    cell: dict[str, object]
    verdict: str
    most_time: Literal["start", "stream"]
    sure: bool
    start: PhaseDocument
    stream: PhaseDocument
    causes: list[CauseDocument]
    remedies: list[RemedyDocument]
    sensitivity: list[SlopeDocument]
    assumptions: list[str]
