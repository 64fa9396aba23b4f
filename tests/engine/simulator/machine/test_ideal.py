"""The roofline of a lane: each step at the rate of the arithmetic that it uses."""

from __future__ import annotations

import pytest

from engine.catalog.this_machine import calibrated_hardware
from engine.errors import UnknownName
from engine.scheduling.plan import SequenceShape
from engine.simulator.machine.ideal import LaneFormats, LaneRoofline
from engine.simulator.machine.typical import dense_spec
from engine.simulator.step_cost import StepCostModel
from tests.engine.simulator.machine.made_up import ARCHITECTURE, BARE

SPEC, HARDWARE = dense_spec(ARCHITECTURE), calibrated_hardware(BARE)


def batch(count: int) -> list[SequenceShape]:
    return [SequenceShape(20, 1, True)] * count


@pytest.mark.parametrize("rows", [1, 96, 97])
@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_plain_weights_are_one_roofline_on_both_paths(name: str, rows: int) -> None:
    roofline = LaneRoofline(SPEC, HARDWARE, LaneFormats(name, name, name, 96))
    plain = StepCostModel(SPEC, HARDWARE, name, name, name)
    assert roofline.cost(batch(rows)).time == plain.cost(batch(rows)).time


def test_levels_meet_8_bits_natively_and_16_in_torch() -> None:
    formats = LaneFormats("mixed-4.5", "bf16", "bf16", 96)
    assert formats.native_activations == "int8"
    roofline = LaneRoofline(SPEC, HARDWARE, formats)
    in_8 = StepCostModel(SPEC, HARDWARE, "mixed-4.5", "bf16", "int8")
    in_16 = StepCostModel(SPEC, HARDWARE, "mixed-4.5", "bf16", "bf16")
    assert roofline.cost(batch(96)).time == in_8.cost(batch(96)).time
    assert roofline.cost(batch(97)).time == in_16.cost(batch(97)).time
    # Bound by arithmetic, so 8-bit products lower the roof of what takes 16-bit ones.
    assert in_8.cost(batch(96)).time < 0.6 * in_16.cost(batch(96)).time


def test_without_native_steps_all_are_torchs() -> None:
    roofline = LaneRoofline(SPEC, HARDWARE, LaneFormats("mixed-4.5", "bf16", "bf16"))
    in_16 = StepCostModel(SPEC, HARDWARE, "mixed-4.5", "bf16", "bf16")
    assert roofline.cost(batch(1)).time == in_16.cost(batch(1)).time
    assert (roofline.model, roofline.hardware) == (SPEC, HARDWARE)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UnknownName):
        LaneRoofline(SPEC, HARDWARE, LaneFormats("fp7", "bf16", "bf16"))
