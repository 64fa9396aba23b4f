"""Elasticities against what the roofline's operators say, and against laws of their sums."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.simulator.roofline import Bound
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import cost_model, estimate
from engine.simulator.search.sensitivity import Elasticity, sensitivities
from engine.simulator.step_cost import StepCost
from engine.simulator.step_shape import scaled_shape

CELLS = [
    Cell("llama-3.1-8b", "h100-sxm", prompt_tokens=2000, output_tokens=2),
    Cell("mixtral-8x7b", "a100-80-sxm", batch=24, devices=4, output_tokens=2),
    Cell("qwen3-next-80b-a3b", "h200-sxm", batch=8, weights="fp8", output_tokens=2),
]


def by_knob(cell: Cell, metric: str) -> dict[str, Elasticity]:
    return {item.knob: item for item in sensitivities(cell) if item.metric == metric}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: str(cell.model))
@pytest.mark.parametrize("metric", ["ttft", "itl"])
def test_at_the_roofline_they_are_shares_of_the_operators(cell: Cell, metric: str) -> None:
    """d ln t / d ln bandwidth = -(time of the operators bound by memory) / t, and so on."""
    model = cost_model(cell)
    group = (cell.batch, 0, cell.prompt_tokens) if metric == "ttft" else (
        cell.batch, cell.prompt_tokens, 1)  # fmt: skip
    cost = model.cost_of(scaled_shape(model.step, [group]))
    assert isinstance(cost, StepCost)
    found = by_knob(cell, metric)
    link = sum(item.time for item in cost.operators if item.bound is Bound.LINK)
    for knob, bound in (
        ("bandwidth_factor", Bound.MEMORY),
        ("flops_factor", Bound.COMPUTE),
    ):
        time = sum(item.time for item in cost.operators if item.bound is bound)
        assert found[knob].value == pytest.approx(-time / cost.time, abs=2e-3)
    assert found["link_factor"].value == pytest.approx(-link / cost.time, abs=2e-3)
    weights = sum(
        item.time * item.operator.weight_bytes / item.operator.bytes
        for item in cost.operators
        if item.bound is Bound.MEMORY and item.operator.bytes
    )
    assert found["weight_bits"].value == pytest.approx(weights / cost.time, abs=5e-3)


def test_time_is_homogeneous_in_the_rates_of_a_device() -> None:
    """All rates twice as high take half the time: the slopes of the rates add up to -1."""
    for cell in CELLS:
        for metric in ("ttft", "itl"):
            found = by_knob(cell, metric)
            rates = ("bandwidth_factor", "flops_factor", "link_factor")
            assert sum(found[name].value for name in rates) == pytest.approx(-1, abs=1e-3)


def test_typical_times_split_into_rates_and_overheads() -> None:
    cell = Cell("llama-3.1-8b", "h100-sxm", times="typical", batch=4)
    for metric in ("ttft", "itl"):
        found = by_knob(cell, metric)
        names = ("bandwidth_factor", "flops_factor", "link_factor")
        rates = sum(found[name].value for name in names)
        overheads = found["launch_factor"].value + found["host_factor"].value
        # Rates shorten what they serve, overheads lengthen the rest: time = a/rates + b overheads.
        assert overheads - rates == pytest.approx(1, abs=2e-3)


def test_the_largest_comes_first_and_says_its_formula() -> None:
    cell = Cell("llama-3.1-8b", "h100-sxm", times="typical")
    found = sensitivities(cell)
    for metric in ("ttft", "itl"):
        values = [abs(item.value) for item in found if item.metric == metric]
        assert values == sorted(values, reverse=True)
    wider = by_knob(cell, "itl")["bandwidth_factor"]
    assert wider.high[1] == estimate(replace(cell, bandwidth_factor=wider.high[0])).itl
    assert wider.formula.startswith("ln(")
    assert -1 < wider.value < -0.5


def test_one_token_has_no_gap_to_move() -> None:
    cell = Cell("llama-3.1-8b", "h100-sxm", output_tokens=1)
    assert {item.metric for item in sensitivities(cell)} == {"ttft"}


def test_caches_with_a_layout_of_their_own_have_no_slope_of_bits() -> None:
    assert "kv_bits" not in by_knob(Cell("deepseek-v3.2", "h200-sxm", kv="fp8"), "itl")
    assert by_knob(Cell("llama-3.1-8b", "h200-sxm", batch=64), "itl")["kv_bits"].value > 0


def test_the_ends_of_a_knob_have_a_slope_too() -> None:
    for factor in Cell.FACTOR_RANGE:
        cell = Cell("llama-3.1-8b", "h100-sxm", bandwidth_factor=factor, flops_factor=factor)
        found = by_knob(cell, "itl")["bandwidth_factor"]
        assert found.low[0] < found.high[0]
        assert found.value == pytest.approx(-1, abs=0.05)


@pytest.mark.parametrize("batch", [1, 32])
def test_no_batch_moves_the_first_token_of_requests_that_come_one_by_one(batch: int) -> None:
    cell = Cell("llama-3.1-8b", "h100-sxm", times="typical", batch=batch)
    found = {(item.metric, item.knob): item for item in sensitivities(cell, one_by_one=True)}
    assert ("ttft", "batch") not in found
    assert found["itl", "batch"].value > 0
    alone = {item.knob: item for item in sensitivities(replace(cell, batch=1)) if
             item.metric == "ttft"}  # fmt: skip
    assert found["ttft", "prompt_tokens"].value == alone["prompt_tokens"].value
