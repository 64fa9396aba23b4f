"""Typical times of a lane: what was measured, in the vocabulary of all cost models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.catalog.this_machine import calibrated_hardware
from engine.scheduling.plan import SequenceShape
from engine.simulator.machine.curves import shapes_of
from engine.simulator.machine.ideal import LaneFormats, LaneRoofline
from engine.simulator.machine.typical import (
    LaneTypical,
    dense_spec,
    fitted,
    formats_of,
    matching_lane,
)
from engine.simulator.roofline_executor import RooflineExecutor
from tests.engine.simulator.machine.made_up import ARCHITECTURE, BARE, FORMATS, made_up_lane

LANE = made_up_lane((0.9, 1.0, 1.1))
CALIBRATION = BARE.with_lane(LANE)
DECODE = [SequenceShape(700, 1, True)] * 9


def model(architecture=ARCHITECTURE) -> LaneTypical:
    spec = dense_spec(architecture)
    roofline = LaneRoofline(spec, calibrated_hardware(CALIBRATION), FORMATS)
    return LaneTypical(roofline, fitted(CALIBRATION, LANE))


def test_a_measured_step_takes_what_it_took_and_the_loop_beside_it() -> None:
    typical = model()
    for step in LANE.steps:
        cost = typical.cost(shapes_of(step))
        own = sum(step.stages.values())
        assert cost.time - cost.parts.scheduler == pytest.approx(own, rel=0.01)


def test_parts_add_up_and_the_loop_grows_with_the_batch() -> None:
    cost = model().cost(DECODE)
    assert cost.parts.time == cost.time
    assert cost.parts.scheduler == pytest.approx(12e-4)
    assert cost.parts.communication == 0
    assert cost.p10 < cost.time < cost.p90
    assert cost.p10 == pytest.approx(0.92 * cost.time, rel=0.02)


def test_work_is_the_ideal_one_and_the_roof_is_above() -> None:
    typical = model()
    cost = typical.cost(DECODE)
    ideal = typical.ideal.cost(DECODE)
    assert (cost.flops, cost.bytes, cost.bound) == (ideal.flops, ideal.bytes, ideal.bound)
    assert cost.efficiency == ideal.time / cost.time < 1


def test_a_step_without_samples_has_no_head_and_no_sampling() -> None:
    typical = model()
    with_sample = typical.cost([SequenceShape(0, 200, True)])
    without = typical.cost([SequenceShape(0, 200, False)])
    assert without.parts.sampling == 0
    assert with_sample.parts.operators > without.parts.operators
    assert with_sample.parts.launch == without.parts.launch


def test_it_goes_wherever_a_cost_model_does() -> None:
    assert RooflineExecutor(model()) is not None


def test_twice_the_layers_take_twice_the_products() -> None:
    deep = {**ARCHITECTURE, "num_layers": 60}
    one, two = model().cost(DECODE), model(deep).cost(DECODE)
    head = 49152 * 576 * 6e-11
    assert two.parts.operators - head == pytest.approx(2 * (one.parts.operators - head), rel=1e-3)


@pytest.mark.parametrize(
    "formats",
    [
        replace(FORMATS, weights="mixed-4.5"),
        replace(FORMATS, kv="fp32"),
        replace(FORMATS, activations="fp32"),
        replace(FORMATS, native_rows=0),
    ],
)
def test_other_lanes_were_not_measured(formats: LaneFormats) -> None:
    assert formats_of(LANE) == FORMATS
    assert matching_lane(CALIBRATION, ARCHITECTURE, FORMATS) is LANE
    assert matching_lane(CALIBRATION, ARCHITECTURE, formats) is None


def test_another_model_was_not_measured() -> None:
    assert matching_lane(CALIBRATION, {**ARCHITECTURE, "num_layers": 31}, FORMATS) is None
