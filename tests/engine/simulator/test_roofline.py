from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.catalog.hardware import get_hardware
from engine.simulator.layout import Layout
from engine.simulator.operators import Operator, Role
from engine.simulator.roofline import Bound, Roofline, RooflineCurve
from engine.simulator.step_cost import StepCostModel
from tests.engine.simulator.cases import tiny


def test_the_curve_is_a_slope_and_a_roof() -> None:
    curve = RooflineCurve(bandwidth=2e12, peak=300e12)
    assert curve.ridge_point == 150
    assert curve.attainable(1) == 2e12
    assert curve.attainable(150) == 300e12
    assert curve.attainable(10_000) == 300e12


@given(intensity=st.floats(1e-3, 1e6), more=st.floats(1, 100))
def test_more_intensity_never_attains_less(intensity: float, more: float) -> None:
    curve = RooflineCurve(1e12, 1e14)
    assert curve.attainable(intensity) <= curve.attainable(intensity * more) <= curve.peak


def test_several_devices_keep_the_ridge_point_and_multiply_the_rest() -> None:
    one = StepCostModel(tiny(), get_hardware("h100-sxm")).curve
    eight = StepCostModel(tiny(), get_hardware("h100-sxm"), layout=Layout(tensor=8)).curve
    assert eight.ridge_point == one.ridge_point
    assert (eight.peak, eight.bandwidth) == (8 * one.peak, 8 * one.bandwidth)


@pytest.mark.parametrize(
    ("operator", "time", "bound"),
    [
        (Operator("a", flops=1e12, weight_bytes=1), 1.0, Bound.COMPUTE),
        (Operator("b", flops=1, weight_bytes=1e9, kv_bytes=1e9), 2.0, Bound.MEMORY),
        (Operator("c", flops=1e12, role=Role.ATTENTION, kv_bytes=1), 2.0, Bound.COMPUTE),
        (Operator("d", link_bytes=1e8), 0.1, Bound.LINK),
        (Operator("e"), 0.0, Bound.MEMORY),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_prices(operator: Operator, time: float, bound: Bound) -> None:
    priced = Roofline(bandwidth=1e9, matmul=1e12, attention=0.5e12, link=1e9).price(operator)
    assert (priced.time, priced.bound) == (time, bound)


def test_an_unknown_link_takes_no_time() -> None:
    roofline = Roofline(bandwidth=1e9, matmul=1e12, attention=1e12)
    assert roofline.price(Operator("x", link_bytes=1e9)).time == 0
