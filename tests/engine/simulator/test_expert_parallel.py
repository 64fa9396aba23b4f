"""Groups that share out the experts: their memory, their reads, and what they send each other."""

from __future__ import annotations

import pytest

from engine.catalog.models import get_model
from engine.errors import InvalidRequest
from engine.scheduling.plan import SequenceShape
from engine.simulator.deployment import Deployment
from engine.simulator.layout import Layout
from engine.simulator.step_cost import StepCostModel
from engine.simulator.typical import TypicalCostModel
from tests.engine.simulator.cases import device

MODEL = get_model("deepseek-v3")
TOKENS = [SequenceShape(1000, 1, True)] * 16
EIGHT = Layout(data=8, experts=True)


def _operators(layout: Layout) -> dict[str, float]:
    cost = StepCostModel(MODEL, device(), "fp8", "fp8", layout=layout).cost(TOKENS)
    return {item.operator.name: item.time for item in cost.operators}


def test_experts_are_divided_and_the_rest_is_not() -> None:
    one = Deployment("deepseek-v3", "h200-sxm", weights="fp8").placement().weights
    eight = Deployment("deepseek-v3", "h200-sxm", EIGHT, weights="fp8").placement().weights
    routed = 58 * 256 * 3 * 7168 * 2048
    assert one == MODEL.num_parameters
    assert eight == MODEL.num_parameters - routed * 7 // 8


def test_a_group_reads_the_experts_that_all_groups_ask_for() -> None:
    step = StepCostModel(MODEL, device(), "fp8", "fp8", layout=EIGHT).cost(TOKENS)
    read = {item.operator.name: item.operator.weight_bytes for item in step.operators}
    # 8 groups of 16 tokens touch 256 (1 - (1 - 8/256)^128) experts; each group keeps an eighth.
    hit = 256 * (1 - (1 - 8 / 256) ** 128) / 8
    assert read["expert down projection"] == pytest.approx(58 * 7168 * 2048 * hit)
    formulas = {item.operator.name: item.operator.bytes_formula for item in step.operators}
    assert "of 256 experts × " in formulas["expert down projection"]
    assert " / 8 groups of weights" in formulas["expert down projection"]


def test_a_token_travels_to_its_experts_and_back() -> None:
    step = StepCostModel(MODEL, device(), "fp8", "fp8", layout=EIGHT).cost(TOKENS)
    sent = {item.operator.name: item.operator.link_bytes for item in step.operators}
    # To 8 groups at most, one in eight of them its own; bf16 both ways, in 58 layers.
    assert sent["expert exchange"] == 16 * 2 * 7 * 7168 * 2 * 58
    assert "all-reduce after mlp" not in sent


def test_imbalance_slows_experts_and_their_exchange_alone() -> None:
    even, skewed = _operators(EIGHT), _operators(Layout(data=8, experts=True, imbalance=1.5))
    assert skewed["expert exchange"] == pytest.approx(1.5 * even["expert exchange"])
    changed = {name for name in even if skewed[name] != even[name]}
    assert changed <= {
        "expert exchange",
        "expert gate and up projection",
        "expert down projection",
    }
    prompt = [SequenceShape(0, 8000, True)]
    times = [
        StepCostModel(MODEL, device(), "fp8", "fp8", layout=layout).cost(prompt).time
        for layout in (EIGHT, Layout(data=8, experts=True, imbalance=1.5))
    ]
    assert times[1] > times[0]
    # All devices of a group share each expert: nothing can be uneven.
    assert _operators(Layout(tensor=8)) == _operators(Layout(tensor=8, imbalance=1.5))


def test_typical_times_exchange_too() -> None:
    model = TypicalCostModel(MODEL, device(), "fp8", "fp8", layout=EIGHT)
    skewed = TypicalCostModel(
        MODEL, device(), "fp8", "fp8", layout=Layout(data=8, experts=True, imbalance=2.0)
    )
    assert model.cost(TOKENS).parts.communication > 0
    assert skewed.cost(TOKENS).parts.communication > model.cost(TOKENS).parts.communication


def test_a_model_without_experts_has_none_to_share_out() -> None:
    with pytest.raises(InvalidRequest) as refused:
        Deployment("llama-3.1-8b", "h100-sxm", EIGHT).cost_model()
    assert refused.value.field == "experts"
