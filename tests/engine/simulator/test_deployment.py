"""A deployment: what it prices with, and the room that it has for a cache."""

from __future__ import annotations

from typing import Any

import pytest

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.errors import InvalidRequest, UnknownName
from engine.scheduling.plan import SequenceShape
from engine.simulator.deployment import Deployment
from engine.simulator.layout import Layout
from engine.simulator.step_cost import StepCostModel
from engine.simulator.typical import TypicalCostModel

SHAPES = [SequenceShape(1000, 1, True)] * 4
EIGHT_B = 8_030_261_248


def test_names_and_specs_are_the_same() -> None:
    named = Deployment("llama-3.1-8b", "h100-sxm")
    given = Deployment(get_model("llama-3.1-8b"), get_hardware("h100-sxm"))
    assert named.model_spec is given.model_spec
    assert named.hardware_spec == given.hardware_spec
    assert named.cost_model().cost(SHAPES).time == given.cost_model().cost(SHAPES).time


def test_ideal_and_typical_are_those_of_their_models() -> None:
    model, device = get_model("llama-3.1-8b"), get_hardware("h100-sxm")
    ideal = Deployment("llama-3.1-8b", "h100-sxm", weights="fp8").cost_model()
    assert ideal.cost(SHAPES).time == StepCostModel(model, device, "fp8").cost(SHAPES).time
    typical = Deployment("llama-3.1-8b", "h100-sxm", times="typical", engine="trtllm")
    expected = TypicalCostModel(model, device, engine="trtllm").cost(SHAPES).time
    assert typical.cost_model().cost(SHAPES).time == expected
    usual = Deployment("llama-3.1-8b", "h100-sxm", times="typical").cost_model()
    assert usual.cost(SHAPES).time == TypicalCostModel(model, device).cost(SHAPES).time


def test_blocks_are_what_the_weights_and_activations_leave() -> None:
    # By hand: logits of 256 rows in fp32 stay below 8,192 rows of stream and MLP.
    activations = 8192 * (4096 + 43_008) * 2
    left = 80 * 10**9 * 9 // 10 - 2 * EIGHT_B - activations
    assert Deployment("llama-3.1-8b", "h100-sxm").kv_blocks() == left // (16 * 131_072)
    # Every device of four keeps two of the eight heads, and a fourth of everything else.
    four = Deployment("llama-3.1-8b", "h100-sxm", Layout(tensor=4)).kv_blocks()
    assert four > 4 * left // (16 * 131_072)


def test_a_window_makes_blocks_of_long_sequences_cheaper() -> None:
    deployment = Deployment("gemma-3-27b", "h100-sxm")
    assert deployment.kv_blocks(1024) == deployment.kv_blocks()
    assert deployment.kv_blocks(32_768) > 4 * deployment.kv_blocks()


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        Deployment("llama-3.1-70b", "h100-sxm").kv_blocks()
    assert refused.value.field == "hardware"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"times": "real"}, "times"),
        ({"memory_utilization": 0.0}, "memory_utilization"),
        ({"memory_utilization": 1.01}, "memory_utilization"),
        ({"block_size": 0}, "block_size"),
    ],
)
def test_wrong_values_name_their_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Deployment("llama-3.1-8b", "h100-sxm", **changes)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": "gpt-5"}, "model"),
        ({"hardware": "b1000"}, "hardware"),
        ({"weights": "int3"}, "weights"),
        ({"times": "typical", "engine": "abacus"}, "engine"),
    ],
)
def test_unknown_names_name_their_field(changes: dict[str, Any], field: str) -> None:
    values: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "h100-sxm", **changes}
    with pytest.raises(UnknownName) as refused:
        Deployment(**values).cost_model()
    assert refused.value.field == field
