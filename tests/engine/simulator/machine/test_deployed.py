"""A deployment on this machine takes the times of the lane that was measured here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.catalog.this_machine import calibrated_hardware, save_calibration
from engine.scheduling.plan import SequenceShape
from engine.simulator.deployment import Deployment, ideal_model
from engine.simulator.features import Features
from engine.simulator.layout import Layout
from engine.simulator.machine.deployed import LaneCostModel
from engine.simulator.machine.ideal import LaneRoofline
from engine.simulator.machine.typical import LaneTypical, dense_spec, fitted
from engine.simulator.run import Batch, run_batch
from engine.simulator.typical import TypicalCostModel
from tests.engine.simulator.machine.made_up import ARCHITECTURE, BARE, FORMATS, made_up_lane

SPEC = dense_spec(ARCHITECTURE)
SHAPES = [SequenceShape(500, 1, True)] * 3
HERE = Deployment(SPEC, "this-machine", weights=FORMATS.weights, kv=FORMATS.kv, times="typical")


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LaneTypical:
    """The lane of a calibration that lies in the state folder."""
    monkeypatch.setenv("FIRSTTOKEN_STATE", str(tmp_path))
    measured = replace(made_up_lane(), lane="int8-g32-rtn")
    calibration = BARE.with_lane(measured)
    save_calibration(calibration)
    roofline = LaneRoofline(SPEC, calibrated_hardware(calibration), FORMATS)
    return LaneTypical(roofline, fitted(calibration, measured))


def test_its_times_are_those_of_the_lane(lane: LaneTypical) -> None:
    model = HERE.cost_model()
    assert isinstance(model, LaneCostModel)
    assert model.cost(SHAPES).time == pytest.approx(lane.cost(SHAPES).time)
    run = run_batch(HERE, Batch(1, 320, 2), Features())
    first = lane.cost([SequenceShape(0, 320, True)]).time
    assert run.ttft == pytest.approx(first)
    assert ideal_model(model).hardware.id == "this-machine"
    assert HERE.calibrated_by == "steps of this project's engine, measured on this machine"


def test_a_lane_is_known_by_its_name_too(lane: LaneTypical) -> None:
    named = replace(HERE, weights="int8-g32")
    assert isinstance(named.cost_model(), LaneCostModel)


@pytest.mark.parametrize(
    "change",
    [
        {"kv": "fp32"},
        {"weights": "fp32"},
        {"activations": "fp32"},
        {"engine": "transformers"},
        {"layout": Layout(2)},
        {"hardware": "h100-sxm"},
    ],
)
def test_what_was_not_measured_takes_the_usual_times(
    lane: LaneTypical, change: dict[str, object]
) -> None:
    model = replace(HERE, **change).cost_model()
    assert isinstance(model, TypicalCostModel)
    assert not isinstance(model, LaneCostModel)
    assert "calibrated efficiencies" in replace(HERE, **change).calibrated_by


def test_a_new_calibration_counts_at_once(lane: LaneTypical) -> None:
    before = HERE.cost_model().cost(SHAPES).time
    measured = made_up_lane()
    slower = replace(
        measured,
        steps=tuple(
            replace(
                step,
                seconds=tuple(2 * each for each in step.seconds),
                stages={name: 2 * each for name, each in step.stages.items()},
            )
            for step in measured.steps
        ),
    )
    save_calibration(replace(BARE, lanes=(slower,)))
    assert HERE.cost_model().cost(SHAPES).time > 1.5 * before
