"""The parts of a model: nothing is lost or counted twice, and each is what it should be."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from engine.catalog.hardware import get_hardware
from engine.catalog.models import all_models, get_model
from engine.catalog.parameters import count_parameters
from engine.scheduling.plan import SequenceShape
from engine.simulator.step_cost import StepCostModel
from webapp.i18n import Language, texts
from webapp.pages.layers_view import (
    Part,
    PartsQuestion,
    operator_parts,
    parameter_parts,
    parts_view,
    read_parts,
)

SAID = texts(Language.ENGLISH)


@pytest.mark.parametrize("spec", all_models(), ids=lambda spec: spec.id)
def test_parts_add_up_to_the_whole(spec) -> None:
    parts = parameter_parts(spec)
    assert sum(parts.values()) == count_parameters(spec).total
    step = StepCostModel(spec, get_hardware("h100-sxm")).step
    operators = step.operators(step.measure((SequenceShape(100, 1, True),)))
    sorted_out = operator_parts(operators)
    assert [operator for _, operator in sorted_out] == list(operators)
    found = {operator.name: part for part, operator in sorted_out}
    assert found["embedding"] is Part.EMBEDDING
    assert found["lm head"] is Part.HEAD
    assert found["attention residual"] is found["final norm"] is Part.REST
    assert {found[name] for name in found if "expert" in name or name == "down projection"} == {
        Part.FFN
    }


def test_of_llama_the_numbers_are_those_of_its_matrices() -> None:
    parts = parameter_parts(get_model("llama-3.1-8b"))
    assert parts[Part.FFN] == 32 * 3 * 4096 * 14336
    assert parts[Part.ATTENTION] == 32 * 4096 * (2 * 4096 + 2 * 1024)
    assert parts[Part.EMBEDDING] == parts[Part.HEAD] == 128256 * 4096
    assert parts[Part.REST] == 65 * 4096


def test_bars_are_whole() -> None:
    view = parts_view(PartsQuestion("mixtral-8x7b", 10), None, SAID)
    assert len(view.bars) == 5
    for bar in view.bars:
        assert [item.part for item in bar.slices] == list(Part)
        assert bar.slices[-1].left + bar.slices[-1].width == pytest.approx(100)
    assert view.idle
    assert view.matrices == 3


def test_scores_grow_with_the_prompt() -> None:
    def core(power: int) -> float:
        view = parts_view(PartsQuestion("llama-3.1-8b", power), None, SAID)
        return next(item.width for item in view.bars[1].slices if item.part is Part.CORE)

    assert core(4) < core(10) < core(17)


def test_the_fragment(client: TestClient) -> None:
    running = client.get("/fragments/layers/parts")
    assert running.status_code == 200
    assert "2 layers" in running.text
    unknown = client.get("/fragments/layers/parts?model=no-such-model&power=99")
    assert unknown.status_code == 200
    assert "no model of this id" in unknown.text
    assert read_parts({"power": "99"}).power == 17
    assert read_parts({}).model == "running"
