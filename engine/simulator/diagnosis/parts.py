"""What takes the time of a typical step, in the words of its causes."""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import InvalidRequest
from engine.simulator.decoder_step import StepShape
from engine.simulator.roofline import Bound
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import cost_model
from engine.simulator.step_shape import scaled_shape
from engine.simulator.typical import TypicalCostModel

CAUSES: Mapping[str, str] = {
    "weights-memory-bound": "reading the weights",
    "kv-bound": "reading the KV cache",
    "activations-memory-bound": "moving activations",
    "compute-bound": "arithmetic",
    "communication": "communication between devices",
    "launch-bound": "launching kernels, and gaps between them",
    "cpu-bound": "the engine's host: scheduling, sampling, detokenizing",
}


def prefill_parts(cell: Cell) -> dict[str, float]:
    """Seconds of the step of the prompts by cause, and of the host before the first token."""
    model = _typical(cell)
    groups = [(float(cell.batch), cell.context_tokens, cell.prompt_tokens)]
    found = _parts(model, scaled_shape(model.step, groups))
    found["cpu-bound"] += model.first_token_overhead
    return found


def decode_parts(cell: Cell) -> dict[str, float]:
    """Seconds of the decode step in the middle of the answer by cause."""
    model = _typical(cell)
    context = cell.context_tokens + cell.prompt_tokens + cell.output_tokens // 2
    return _parts(model, scaled_shape(model.step, [(float(cell.batch), context, 1)]))


def _typical(cell: Cell) -> TypicalCostModel:
    model = cost_model(cell)
    if not isinstance(model, TypicalCostModel):
        raise InvalidRequest("causes are those of typical times", field="times")
    return model


def _parts(model: TypicalCostModel, shape: StepShape) -> dict[str, float]:
    """Operators take typical time in the proportions that they have at the roofline."""
    cost = model.cost_of(shape)
    found = dict.fromkeys(CAUSES, 0.0)
    for priced in cost.operators:
        operator = priced.operator
        if priced.bound is Bound.COMPUTE:
            found["compute-bound"] += priced.time
        elif priced.bound is Bound.MEMORY and operator.bytes:
            each = priced.time / operator.bytes
            found["weights-memory-bound"] += each * operator.weight_bytes
            found["kv-bound"] += each * operator.kv_bytes
            found["activations-memory-bound"] += each * operator.activation_bytes
    scale = cost.parts.operators / sum(found.values())
    found = {name: scale * seconds for name, seconds in found.items()}
    found["communication"] = cost.parts.communication
    found["launch-bound"] = cost.parts.launch
    found["cpu-bound"] = cost.parts.scheduler + cost.parts.sampling
    return found
