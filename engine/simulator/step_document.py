"""One step in a document: its totals, its operators, and the expressions behind them."""

from __future__ import annotations

from collections.abc import Sequence

from engine.catalog.precision import whole
from engine.catalog.units import si_label, time_label
from engine.simulator.quantity import Document, Sources, quantity
from engine.simulator.roofline import Bound, PricedOperator
from engine.simulator.step_cost import StepCost, StepCostModel


def write_step(cost: StepCost, sources: Sources) -> Document:
    """FLOPs, bytes, intensity, time and bound on all devices; the operators of one device."""
    model = cost.model
    devices = model.group.devices
    on_all = "" if devices == 1 else f" × {devices} devices"
    priced = cost.operators
    flops = [
        f"{item.operator.name} {item.operator.flops:,}" for item in priced if item.operator.flops
    ]
    structure, rates = sources.structure, sources.rates
    return {
        "flops": quantity(whole(cost.flops), "FLOP", " + ".join(flops) + on_all, structure),
        "bytes": quantity(whole(cost.bytes), "B", _bytes_formula(priced) + on_all, structure),
        "intensity": quantity(
            cost.intensity,
            "FLOP/B",
            f"{cost.flops:,.0f} FLOP / {cost.bytes:,.0f} B",
            structure,
        ),
        "time": quantity(cost.time, "s", _time_formula(priced, model), rates),
        "bound": quantity(cost.bound.value, "bound", _bound_formula(priced, model), rates),
        "operators": [_operator(item, model, sources) for item in priced],
    }


def _operator(priced: PricedOperator, model: StepCostModel, sources: Sources) -> Document:
    operator, roofline = priced.operator, model.roofline
    time = (
        f"max({operator.flops:,} FLOP / {si_label(roofline.peak(operator), 'FLOP/s')}, "
        f"{operator.bytes:,} B / {si_label(roofline.bandwidth, 'B/s')})"
    )
    if operator.link_bytes:
        speed = roofline.speed(operator.route)
        time = f"{operator.link_bytes:,.0f} B {operator.route}" + (
            f" at {si_label(speed, 'B/s')}" if speed else ", over a link of unknown speed: 0"
        )
    if operator.skew != 1:
        time = f"the busiest device does {operator.skew:g} times the mean: {time}"
    structure = sources.structure
    intensity = f"{operator.flops:,} FLOP / {operator.bytes:,} B"
    return {
        "name": operator.name,
        "bound": quantity(priced.bound.value, "bound", time, sources.rates),
        "flops": quantity(operator.flops, "FLOP", operator.flops_formula, structure),
        "bytes": quantity(operator.bytes, "B", operator.bytes_formula, structure),
        "intensity": quantity(operator.intensity, "FLOP/B", intensity, structure),
        "time": quantity(priced.time, "s", time, sources.rates),
    }


def _time_formula(priced: Sequence[PricedOperator], model: StepCostModel) -> str:
    roofline = model.roofline
    sums = {bound: sum(item.time for item in priced if item.bound is bound) for bound in Bound}
    parts = [f"{time_label(sums[bound])} bound by {bound.value}" for bound in Bound if sums[bound]]
    return (
        f"sum over operators of max(FLOP / {si_label(roofline.matmul, 'FLOP/s')}, "
        f"B / {si_label(roofline.bandwidth, 'B/s')}) = {' + '.join(parts)}"
    )


def _bound_formula(priced: Sequence[PricedOperator], model: StepCostModel) -> str:
    roofline = model.roofline
    operators = [item.operator for item in priced]
    compute = sum(operator.flops / roofline.peak(operator) for operator in operators)
    memory = sum(operator.bytes for operator in operators) / roofline.bandwidth
    return (
        f"{time_label(compute)} for all arithmetic against {time_label(memory)} for all memory "
        "traffic"
    )


def _bytes_formula(priced: Sequence[PricedOperator]) -> str:
    operators = [item.operator for item in priced]
    weights = sum(operator.weight_bytes for operator in operators)
    activations = sum(operator.activation_bytes for operator in operators)
    cache = sum(operator.kv_bytes for operator in operators)
    return (
        f"{weights:,.0f} B of weights + {activations:,.0f} B of activations + "
        f"{cache:,.0f} B of KV cache"
    )
