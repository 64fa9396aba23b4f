"""What somebody measured of an answer, and the run that it was measured on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.refusals import refused
from engine.simulator.search.cell import Cell

_LONGEST_S = 1e6


@dataclass(frozen=True, slots=True)
class Observation:
    """Measured times [s] of requests on the deployment of ``cell``.

    ``cell.batch`` requests were under way at once; with ``together`` they arrived at once and
    their prompts ran in one step, else they came one by one. ``itl`` is the mean gap between
    tokens, ``itl_p99`` its 99th percentile, ``queue`` the time before a request's first step,
    ``tokens_per_s`` the output tokens of all ``cell.batch`` requests together.

    Raises:
        InvalidRequest: a number is out of its range, or neither time is given (names the field).
    """

    cell: Cell
    ttft: float | None = None
    itl: float | None = None
    itl_p99: float | None = None
    queue: float | None = None
    tokens_per_s: float | None = None
    together: bool = False

    def __post_init__(self) -> None:
        for name in ("ttft", "itl", "itl_p99", "tokens_per_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < _LONGEST_S:
                raise refused("choose_below", field=name, high="1,000,000")
        if self.queue is not None and not 0 <= self.queue < _LONGEST_S:
            raise refused("choose_from_zero", field="queue", high="1,000,000")
        if self.ttft is None and self.itl is None:
            raise refused("time_needed", field="ttft")
        if self.itl is not None and self.cell.output_tokens < 2:
            raise refused("no_gap", field="output_tokens")

    @property
    def prefill_cell(self) -> Cell:
        """The run whose first step made the first token."""
        return self.cell if self.together else replace(self.cell, batch=1)

    @property
    def measured_part(self) -> str:
        """What a saving is a saving of: the part of an answer whose time was measured."""
        if self.itl is None:
            return "the time to the first token"
        rest = f"the {self.cell.output_tokens - 1:,} tokens after the first"
        return rest if self.ttft is None else "the whole answer"

    @property
    def slow_phase_is_start(self) -> bool:
        """Whether more of the whole answer's time passed before its first token."""
        return (self.ttft or 0.0) > (self.itl or 0.0) * (self.cell.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Times:
    """Predicted counterparts of an observation; NaN where nothing is predicted."""

    ttft: float
    itl: float
    itl_p99: float
    queue: float
    tokens_per_s: float


def whole_answer(ttft: float, itl: float, output: int) -> float:
    """Seconds from a request's arrival to its last token."""
    return ttft + (0.0 if math.isnan(itl) else itl * (output - 1))
