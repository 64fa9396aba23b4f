"""A fit finds the formula again that steps were made from, also where none of them was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.catalog.lane_calibration import MeasuredStep
from engine.simulator.machine.curves import (
    Curve,
    LaneCurves,
    _non_negative,
    fit_lane,
    launch_seconds,
    operator_seconds,
)
from tests.engine.simulator.machine.made_up import (
    BYTE_S,
    CHECKS,
    FLOP_S,
    HEAD_S,
    SAMPLE_S,
    made_up_lane,
    measured,
    product_seconds,
    terms_of,
)


def fit(check_factors: tuple[float, ...] = (1.0,)) -> LaneCurves:
    lane = made_up_lane(check_factors)
    return fit_lane(lane, lambda shapes: terms_of(_step_of(shapes)))


def _step_of(shapes) -> MeasuredStep:
    first = shapes[0]
    return MeasuredStep(len(shapes), first.prefix_tokens, first.new_tokens, (1.0,), {})


@pytest.mark.parametrize("path", ["native", "torch"])
def test_the_formula_is_found_again(path: str) -> None:
    curves = fit()
    found = getattr(curves, path)
    assert found.flop_s == pytest.approx(FLOP_S, rel=1e-3)
    assert found.byte_s == pytest.approx(BYTE_S, rel=1e-2)
    for rows in (1, 2, 4, 8, 48, 96) if path == "native" else (128, 1_024):
        assert found.products.at(rows) == pytest.approx(product_seconds(rows), rel=1e-3)
    assert found.head.at(1) == pytest.approx(HEAD_S)
    assert curves.sampling.at(5) == pytest.approx(SAMPLE_S)
    assert (found.p10, found.p90) == pytest.approx((1.0, 1.0), rel=1e-3)


@pytest.mark.parametrize(
    "size", [(1, 4_096, 1), (3, 700, 1), (8, 4_096, 1), (1, 0, 64), (1, 0, 512), (1, 1_024, 1_024)]
)
def test_steps_that_were_not_measured_take_what_the_formula_says(size) -> None:
    curves, step = fit(), measured(*size)
    terms, path = terms_of(step), fit().path(step.rows)
    seconds = operator_seconds(terms, path) + launch_seconds(terms, path)
    seconds += curves.sampling.at(terms.sequences)
    assert seconds == pytest.approx(step.seconds[0], rel=0.02)


def test_the_interval_is_that_of_the_checks() -> None:
    factors = tuple(np.linspace(0.8, 1.3, 101))
    found = fit(factors).torch
    assert (found.p10, found.p90) == pytest.approx((0.85, 1.25), rel=1e-3)


def test_checks_change_nothing_else() -> None:
    assert fit((3.0,)).torch.products == fit().torch.products
    assert fit((3.0,)).native.flop_s == fit().native.flop_s  # pyright: ignore[reportOptionalMemberAccess]


def test_without_checks_the_interval_is_that_of_the_fit() -> None:
    lane = made_up_lane()
    lane = replace(lane, steps=lane.steps[: -len(CHECKS)])
    found = fit_lane(lane, lambda shapes: terms_of(_step_of(shapes)))
    assert (found.torch.p10, found.torch.p90) == pytest.approx((1.0, 1.0), rel=1e-2)


def test_a_path_that_was_not_measured_is_an_error() -> None:
    lane = made_up_lane()
    short = tuple(step for step in lane.steps if step.rows <= lane.native_rows)
    with pytest.raises(ValueError, match="no torch steps"):
        fit_lane(replace(lane, steps=short), lambda shapes: terms_of(_step_of(shapes)))


def test_where_all_steps_are_native_no_other_path_is_needed() -> None:
    lane = made_up_lane()
    short = tuple(step for step in lane.steps if step.rows <= lane.native_rows)
    launch = {"native": lane.launch["native"]}
    lane = replace(lane, native_rows=2**31 - 1, steps=short, launch=launch)
    curves = fit_lane(lane, lambda shapes: terms_of(_step_of(shapes)))
    assert curves.path(1) is curves.path(5_000) is curves.native


def test_without_native_rows_torch_takes_every_step() -> None:
    lane = replace(made_up_lane(), native_rows=0)
    curves = fit_lane(lane, lambda shapes: terms_of(_step_of(shapes)))
    assert curves.native is None
    assert curves.path(1) is curves.torch


def test_a_curve_is_straight_between_knots_and_goes_on() -> None:
    curve = Curve((1.0, 2.0, 6.0), (10.0, 20.0, 24.0))
    assert [curve.at(rows) for rows in (1, 1.5, 2, 4, 6, 10)] == [10, 15, 20, 22, 24, 28]
    assert curve.at(0.5) == 5
    assert Curve((4.0, 8.0), (1.0, 5.0)).at(0) == 0
    assert Curve((4.0,), (7.0,)).at(100) == 7


def test_nothing_is_negative() -> None:
    # Without the bound the second unknown would be -1.
    matrix = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    found = _non_negative(matrix, np.array([3.0, 2.0, 1.0]))
    assert found.tolist() == pytest.approx([2.0, 0.0])
    assert _non_negative(matrix, np.array([-1.0, -2.0, -3.0])).tolist() == [0.0, 0.0]
