"""``POST /api/v1/sweep``: the question, and the document that answers it."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from engine.simulator.efficiency import DEFAULT_ENGINE
from engine.simulator.search.axes import KNOBS, Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.sweep import METRICS
from webapp.schemas.base import Name, NameOrObject, OutputModel, StrictModel
from webapp.schemas.simulate import Batch, Devices, OutputTokens, PromptTokens

MAX_CELLS = 100_000
MAX_VALUES = 4096
SHORT_CELLS = 2048
"""Cells up to which a sweep takes some hundredths of a second."""

_LONGEST_NAME = 100
_FACTORS = Cell.FACTOR_RANGE
_CONTEXT = Cell.RANGES["context_tokens"]

Factor = Annotated[float, Field(ge=_FACTORS[0], le=_FACTORS[1])]


def _check_value(value: object) -> object:
    """A name or a number; which of them a knob takes is the engine's to say."""
    good = (isinstance(value, str) and 1 <= len(value) <= _LONGEST_NAME) or (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    )
    if not good:
        raise PydanticCustomError("bad_value", "Send a name or a finite number.")
    return value


KnobValue = Annotated[
    str | int | float,
    PlainValidator(_check_value, json_schema_input_type=str | int | float),
]


class SweepCell(StrictModel):
    """What all cells have in common, where no axis turns it."""

    model: NameOrObject = Field(
        description='An id of GET /api/v1/models, or {"config": {...}} with a config.json.'
    )
    hardware: NameOrObject = Field(
        description='An id of GET /api/v1/hardware, this-machine, or {"custom": {...}}.'
    )
    devices: Devices = Field(default=1, description="Devices that share every matrix.")
    weights: Name = "bf16"
    kv: Name = "bf16"
    activations: Name | None = None
    times: Literal["ideal", "typical"] = Field(
        default="ideal", description="At the roofline, or as an engine reaches it."
    )
    engine: Name = Field(default=DEFAULT_ENGINE, description="Whose overheads typical times have.")
    batch: Batch = 1
    prompt_tokens: PromptTokens = 512
    output_tokens: OutputTokens = 128
    context_tokens: int = Field(
        default=0, ge=_CONTEXT[0], le=_CONTEXT[1], description="Cached before the prompt arrives."
    )
    usd_per_hour: float | None = Field(default=None, ge=0, le=1e6)
    memory_utilization: float = Field(
        default=0.9, ge=0.01, le=1, description="Part of the memory that may be filled."
    )
    bandwidth_factor: Factor = 1.0
    flops_factor: Factor = 1.0
    link_factor: Factor = 1.0
    launch_factor: Factor = 1.0
    host_factor: Factor = 1.0


class SweepAxis(StrictModel):
    """A knob, and the values that it takes."""

    knob: Name = Field(description=f"One of {', '.join(KNOBS)}.")
    values: list[KnobValue] = Field(min_length=1, max_length=MAX_VALUES)


class SweepRequest(StrictModel):
    """All combinations of the axes' values; 100,000 at most."""

    base: SweepCell
    axes: list[SweepAxis] = Field(default=[], max_length=Sweep.MAX_AXES)
    metrics: list[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=len(METRICS),
        description=f"Some of {', '.join(METRICS)}; null gives all.",
    )

    @model_validator(mode="after")
    def _check_cells(self) -> SweepRequest:
        if self.cells > MAX_CELLS:
            raise PydanticCustomError(
                "bad_combination", "Ask for at most {cells} cells.", {"cells": MAX_CELLS}
            )
        return self

    @property
    def cells(self) -> int:
        """Combinations of values."""
        return math.prod(len(axis.values) for axis in self.axes)


class EstimatedMetric(OutputModel):
    """``value`` is null where nothing is predicted; eight of ten measured ones lay between ``p10``
    and ``p90``, which only typical times have."""

    value: float | bool | None
    unit: str
    kind: Literal["predicted"]
    p10: float | None = None
    p90: float | None = None


class EstimateDocument(OutputModel):
    """One run: times in s, memory in B, and what a million output tokens cost."""

    ttft: EstimatedMetric
    itl: EstimatedMetric
    e2e: EstimatedMetric
    tokens_per_s: EstimatedMetric
    memory: EstimatedMetric
    fits: EstimatedMetric
    usd_per_mtok: EstimatedMetric


class SweptAxis(OutputModel):
    knob: str
    unit: str
    meaning: str
    values: list[str | int | float]


class SweptMetric(OutputModel):
    """One value a cell, the last axis running fastest; null where nothing is predicted."""

    unit: str
    kind: Literal["predicted"]
    formula: str
    values: list[float | bool | None]
    p10: float | list[float | None] | None = Field(
        default=None, description="Of typical times: a factor, for all cells or one for each."
    )
    p90: float | list[float | None] | None = None


class SweepDocument(OutputModel):
    """The answer; the same document as ``python -m engine sweep --format json``."""

    base: dict[str, object]
    axes: list[SweptAxis]
    shape: list[int]
    metrics: dict[str, SweptMetric]
    assumptions: list[str]
