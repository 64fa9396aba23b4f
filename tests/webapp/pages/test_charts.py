"""The geometry of charts, against the definitions written out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webapp.charts import (
    MOST_TICKS,
    NARROW,
    STRIP_WIDTH,
    WIDE,
    LogAxis,
    Roof,
    roofline_chart,
    strip_chart,
)

ROOF = Roof(bandwidth=20e9, peak=400e9)


def test_log_axis_puts_a_decade_where_it_belongs() -> None:
    axis = LogAxis(low=-1, high=3, start=100, end=500)
    assert axis.position(0.1) == pytest.approx(100)
    assert axis.position(1) == pytest.approx(200)
    assert axis.position(1000) == pytest.approx(500)
    assert [tick.value for tick in axis.ticks] == [0.1, 1, 10, 100, 1000]
    assert axis.position(math.sqrt(10)) == pytest.approx(250)


def test_an_axis_may_run_upwards_and_end_inside_a_decade() -> None:
    axis = LogAxis(low=0, high=1.5, start=300, end=0)
    assert axis.position(1) == 300
    assert [tick.value for tick in axis.ticks] == [1, 10]
    assert axis.position(10) == pytest.approx(100)


def test_roof() -> None:
    assert ROOF.ridge == 20
    assert ROOF.attainable(1) == 20e9
    assert ROOF.attainable(20) == 400e9
    assert ROOF.attainable(1000) == 400e9


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=lambda size: size.name)
def test_roofline_lines_meet_at_the_ridge(size) -> None:
    chart = roofline_chart(ROOF, size)
    assert chart.ridge_x == pytest.approx(chart.x.position(20))
    assert chart.peak_y == pytest.approx(chart.y.position(400e9))
    x, y = chart.slope_start
    assert x == size.left
    assert y == pytest.approx(chart.y.position(2e9))
    # On log-log axes the memory roof has slope one: a decade right is a decade up.
    decade_x = (chart.x.end - chart.x.start) / (chart.x.high - chart.x.low)
    decade_y = (chart.y.start - chart.y.end) / (chart.y.high - chart.y.low)
    slope = (y - chart.peak_y) / (chart.ridge_x - x)
    assert slope == pytest.approx(decade_y / decade_x)
    assert chart.slope_degrees == pytest.approx(-math.degrees(math.atan(slope)))


@given(
    bandwidth=st.floats(1e8, 1e14),
    ridge=st.floats(0.5, 5000),
)
def test_every_machine_fits_its_chart(bandwidth: float, ridge: float) -> None:
    roof = Roof(bandwidth, bandwidth * ridge)
    for size in (WIDE, NARROW):
        chart = roofline_chart(roof, size)
        assert size.left <= chart.ridge_x <= size.width - size.right
        assert size.top < chart.peak_y < size.height - size.bottom
        assert size.top <= chart.slope_start[1] <= size.height - size.bottom
        assert len(chart.y.ticks) >= 2


def test_without_a_calibration_there_are_axes_and_no_roof() -> None:
    chart = roofline_chart(None, WIDE)
    assert chart.roof is None
    assert chart.x.ticks
    with pytest.raises(ValueError, match="no roof"):
        _ = chart.ridge_x


def test_strip_is_to_scale() -> None:
    strip = strip_chart(first_s=0.3, gap_s=0.01, gaps=70)
    assert strip.first == pytest.approx(STRIP_WIDTH * 0.3)
    assert strip.tick == pytest.approx(STRIP_WIDTH * 0.01)
    assert len(strip.ticks) == 70
    assert strip.ticks[-1] + strip.tick == pytest.approx(STRIP_WIDTH)


def test_strip_of_a_long_answer_stays_small_and_to_scale() -> None:
    strip = strip_chart(first_s=1, gap_s=0.01, gaps=2000)
    assert len(strip.ticks) <= MOST_TICKS
    assert strip.per_tick == 10
    assert strip.ticks[-1] + strip.tick == pytest.approx(STRIP_WIDTH)


def test_strip_of_one_token_is_one_block() -> None:
    strip = strip_chart(first_s=1, gap_s=0.0, gaps=0)
    assert strip.first == STRIP_WIDTH
    assert strip.ticks == ()
