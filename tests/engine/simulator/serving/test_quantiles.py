"""Quantiles in bounded memory against sorting everything."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.simulator.serving.quantiles import (
    EXACT_VALUES,
    PERCENTILES,
    RELATIVE_ERROR,
    StreamingQuantiles,
)

times = st.floats(min_value=0, max_value=1e6, allow_subnormal=False)


def nearest_rank(values: list[float], share: float) -> float:
    return sorted(values)[max(math.ceil(share * len(values) - 1e-9), 1) - 1]


@given(st.lists(st.tuples(times, st.integers(1, 5)), min_size=1, max_size=60))
def test_few_values_are_exact(pairs):
    kept = StreamingQuantiles()
    listed = []
    for value, count in pairs:
        kept.add(value, count)
        listed += [value] * count
    assert kept.is_exact
    for percent in (0, *PERCENTILES, 100):
        assert kept.quantile(percent / 100) == nearest_rank(listed, percent / 100)
    summary = kept.summary()
    assert summary is not None
    assert summary.count == len(listed)
    assert summary.mean == pytest.approx(math.fsum(listed) / len(listed))
    assert (summary.least, summary.most) == (min(listed), max(listed))


@pytest.mark.parametrize("spread", [0.01, 1.0, 3.0])
def test_many_values_are_within_the_stated_error(spread):
    drawn = random.Random(4)
    values = [drawn.lognormvariate(-3, spread) for _ in range(40_000)] + [0.0] * 4_000
    kept = StreamingQuantiles()
    for value in values:
        kept.add(value)
    assert not kept.is_exact
    for share in (0.05, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0):
        expected = nearest_rank(values, share)
        assert kept.quantile(share) == pytest.approx(expected, rel=RELATIVE_ERROR * 1.000001)


def test_memory_does_not_grow_with_the_stream():
    kept = StreamingQuantiles()
    drawn = random.Random(1)
    sizes = []
    for count in (50_000, 150_000):
        while kept.count < count:
            kept.add(10 ** drawn.uniform(-2, 1))
        sizes.append(kept.memory_entries)
    # ln(10 / 0.01) / ln(gamma) buckets at most, whatever comes.
    assert max(sizes) <= math.log(1000) / (2 * RELATIVE_ERROR) + 2
    assert sizes[1] <= sizes[0] * 1.02


@given(st.lists(times, min_size=1, max_size=50))
def test_percentiles_are_ordered(values):
    kept = StreamingQuantiles()
    for value in values:
        kept.add(value)
    summary = kept.summary()
    assert summary is not None
    ordered = [summary.least, *summary.percentiles, summary.most]
    assert ordered == sorted(ordered)


def test_order_of_adding_makes_no_difference_even_across_the_limit():
    drawn = random.Random(9)
    values = [drawn.random() for _ in range(EXACT_VALUES + 500)]
    forth, back = StreamingQuantiles(), StreamingQuantiles()
    for value in values:
        forth.add(value, 2)
    for value in reversed(values):
        back.add(value)
        back.add(value)
    shares = [0.1, 0.5, 0.9]
    assert forth.quantiles(shares) == back.quantiles(shares)


@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_what_is_no_time_is_refused(value):
    with pytest.raises(ValueError, match="at least 0"):
        StreamingQuantiles().add(value)


def test_nothing_has_no_quantiles():
    assert StreamingQuantiles().summary() is None
    with pytest.raises(ValueError, match="need a value"):
        StreamingQuantiles().quantile(0.5)
