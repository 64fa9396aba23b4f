"""The metrics of one cell, step by step with the cost models: the slow way to a sweep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from engine.simulator.layout import Layout
from engine.simulator.memory import PagedTokens, memory_needs
from engine.simulator.search.cell import Cell
from engine.simulator.search.rates import with_overheads
from engine.simulator.step_cost import StepCostModel
from engine.simulator.step_price import Value
from engine.simulator.step_shape import growing_contexts, scaled_shape
from engine.simulator.typical import TypicalCostModel

_SECONDS_AN_HOUR = 3600
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Metrics:
    """What is predicted of a cell. Times in s, memory in B on all devices together.

    ``itl`` is the mean gap between tokens; NaN with one output token. ``tokens_per_s`` counts
    the output tokens of all requests from their arrival to the last token. ``usd_per_mtok`` is the
    price of a million output tokens, prompts included; NaN where no price is known. ``fits`` keeps
    the rest of the memory free.
    """

    ttft: float
    itl: float
    e2e: float
    tokens_per_s: float
    memory: float
    fits: bool
    usd_per_mtok: float


def estimate(cell: Cell) -> Metrics:
    """The metrics of one cell.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``StepCostModel`` and
            ``TypicalCostModel``.
    """
    model = cost_model(cell)
    ttft, gap = first_token_time(cell, model), gap_time(cell, model)
    e2e = ttft if gap is None else ttft + (cell.output_tokens - 1) * gap
    tokens_per_s = cell.batch * cell.output_tokens / e2e
    needs = memory_needs(
        model.step,
        model.hardware,
        PagedTokens(cell.batch, cell.cached_tokens),
        cell.batch * cell.prompt_tokens,
    )
    return Metrics(
        ttft=ttft,
        itl=math.nan if gap is None else gap,
        e2e=e2e,
        tokens_per_s=tokens_per_s,
        memory=float(needs.total),
        fits=needs.total <= needs.capacity * Fraction(str(cell.memory_utilization)),
        usd_per_mtok=usd_per_mtok(hourly_price(cell), tokens_per_s),
    )


def first_token_time(cell: Cell, model: StepCostModel | TypicalCostModel) -> float:
    """Seconds of the step of all prompts, and of what the host takes before a first token."""
    shape = scaled_shape(model.step, [(cell.batch, cell.context_tokens, cell.prompt_tokens)])
    host = model.first_token_overhead if isinstance(model, TypicalCostModel) else 0.0
    return model.cost_of(shape).time + host


def gap_time(cell: Cell, model: StepCostModel | TypicalCostModel) -> float | None:
    """Mean seconds of the decode steps, over the growing context; None with one output token."""
    if cell.output_tokens < 2:
        return None
    start = cell.context_tokens + cell.prompt_tokens
    contexts = growing_contexts(start, cell.output_tokens - 1)
    shapes = [scaled_shape(model.step, [(cell.batch, context, 1)]) for context in contexts]
    return math.fsum(model.cost_of(shape).time for shape in shapes) / len(shapes)


def usd_per_mtok(hourly: Value, tokens_per_s: Value) -> Value:
    """US dollars for a million tokens of devices that cost ``hourly`` dollars an hour together."""
    return hourly / _SECONDS_AN_HOUR / tokens_per_s * _MILLION


def hourly_price(cell: Cell) -> float:
    """US dollars an hour of all devices; NaN where no price is known."""
    price = cell.device_price
    return math.nan if price is None else price * cell.devices


def cost_model(cell: Cell) -> StepCostModel | TypicalCostModel:
    """What prices the steps of a cell.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for the two classes.
    """
    names = (cell.weights, cell.kv, cell.activations)
    model, hardware = cell.model_spec, cell.stretched_hardware
    layout = Layout(tensor=cell.devices)
    if cell.times == "ideal":
        return StepCostModel(model, hardware, *names, layout)
    typical = TypicalCostModel(model, hardware, *names, layout, cell.engine)
    typical.rates = with_overheads(typical.rates, cell.launch_factor, cell.host_factor)
    return typical
