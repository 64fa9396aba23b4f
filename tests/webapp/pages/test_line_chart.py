"""The geometry of line charts, and that their tables say the same."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webapp.line_chart import NARROW, ChartWords, Cross, FineLogAxis, Line, LinearAxis, plot

WORDS = ChartWords("c", "title", "what", "x", "y", lambda v: f"{v:g}", lambda v: f"{v:g} s")
positive = st.floats(1e-9, 1e15)


def test_a_linear_axis_has_round_ticks_within_it() -> None:
    ticks = LinearAxis(0.0, 137.0, 0.0, 274.0).ticks
    assert [tick.value for tick in ticks] == [0, 20, 40, 60, 80, 100, 120]
    assert [tick.position for tick in ticks] == pytest.approx([2.0 * tick.value for tick in ticks])


@given(low=positive, times=st.floats(1.5, 1e9))
def test_a_logarithmic_axis_has_some_ticks_and_not_too_many(low: float, times: float) -> None:
    axis = FineLogAxis(low, low * times, 0.0, 100.0)
    values = [tick.value for tick in axis.ticks]
    assert len(values) <= 10
    assert all(low * 0.999 <= value <= low * times * 1.001 for value in values)
    assert values or times < 2.6  # 2 to 5 is the widest gap between ticks


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=20, unique_by=lambda p: p[0]))
def test_every_point_lies_within_the_chart(points: list[tuple[float, float]]) -> None:
    drawn = plot(WORDS, [Line("a", tuple(sorted(points)))], log_x=True, log_y=True)
    for chart in (drawn.wide, drawn.narrow):
        (line,) = chart.lines
        places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", line.path)
        assert len(places) == len(points)
        for x, y in places:
            assert chart.left - 0.1 <= float(x) <= chart.right + 0.1
            assert chart.size.top - 0.1 <= float(y) <= chart.bottom + 0.1


def test_a_line_breaks_where_it_has_no_value() -> None:
    drawn = plot(WORDS, [Line("a", ((1.0, 1.0), (2.0, None), (3.0, 2.0)))])
    assert drawn.wide.lines[0].path.count("M") == 2
    assert drawn.rows == (("1", ("1 s",)), ("2", ("—",)), ("3", ("2 s",)))


def test_names_of_lines_that_end_together_stand_apart() -> None:
    lines = [Line(name, ((0.0, 0.0), (1.0, 1.0 + 1e-6 * n))) for n, name in enumerate("abcde")]
    heights = sorted(drawn.label[1] for drawn in plot(WORDS, lines).narrow.lines)
    gaps = [after - before for before, after in itertools.pairwise(heights)]
    assert min(gaps) >= 15.9


def test_the_table_has_a_row_for_every_x_of_any_line() -> None:
    drawn = plot(
        WORDS,
        [Line("a", ((1.0, 1.0), (2.0, 2.0))), Line("b", ((2.0, 3.0),))],
        crosses=[Cross(1.5, "here")],
    )
    assert drawn.columns == ("a", "b")
    assert drawn.rows == (("1", ("1 s", "—")), ("2", ("2 s", "3 s")))
    assert drawn.wide.crosses[0][1] == "here"


def test_nothing_to_draw_and_zero_on_a_logarithmic_axis_are_errors() -> None:
    with pytest.raises(ValueError, match="needs a point"):
        plot(WORDS, [Line("a", ((1.0, None),))])
    with pytest.raises(ValueError, match="above zero"):
        plot(WORDS, [Line("a", ((1.0, 0.0),))], log_y=True)


def test_a_time_has_room_beside_the_narrow_axis() -> None:
    # "10.0 ms" in a monospaced font of 12.5 pixels, whose characters are 0.6 of that wide.
    assert NARROW.left - 8 >= len("10.0 ms") * 12.5 * 0.6
