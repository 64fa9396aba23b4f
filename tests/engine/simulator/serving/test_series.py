"""Levels over time: integrals are conserved, whatever is merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulator.serving.series import MAX_BINS, BoundedSeries

spans = st.lists(
    st.tuples(st.floats(0, 50), st.floats(1e-6, 40), st.integers(0, 9)), min_size=1, max_size=40
)


@given(spans)
def test_the_integral_of_a_level_is_that_of_what_was_told(told):
    series = BoundedSeries(("level",))
    for start, duration, level in told:
        series.add(start, duration, (level,))
    end = max(start + duration for start, duration, _ in told)
    found = series.means(end)
    means = found.means["level"]
    assert len(means) <= MAX_BINS
    spans_of_bins = [min(found.width, end - i * found.width) for i in range(len(means))]
    integral = sum(mean * span for mean, span in zip(means, spans_of_bins, strict=True))
    assert integral == pytest.approx(sum(d * level for _, d, level in told), rel=1e-6, abs=1e-9)


def test_a_constant_level_is_constant_after_many_merges():
    series = BoundedSeries(("a", "b"))
    for index in range(20_000):
        series.add(index * 0.5, 0.5, (3, 1))
    found = series.means(10_000)
    assert MAX_BINS / 4 < len(found.means["a"]) <= MAX_BINS
    assert found.means["a"] == pytest.approx([3.0] * len(found.means["a"]))
    assert found.means["b"] == pytest.approx([1.0] * len(found.means["b"]))


def test_where_nothing_ran_there_is_nothing():
    series = BoundedSeries(("level",))
    series.add(0.0, 1.0, (2,))
    series.add(99.0, 1.0, (4,))
    means = series.means(100.0).means["level"]
    assert means[0] == pytest.approx(2.0)
    assert means[len(means) // 2] == 0
    assert means[-1] == pytest.approx(4.0)
