"""Drawn gaps and lengths have the moments they are asked for, and are the same for a seed."""

from __future__ import annotations

from itertools import islice
from random import Random
from statistics import fmean, pstdev

import pytest

from engine.errors import InvalidRequest
from engine.simulator.serving.arrivals import ClosedLoop, GammaArrivals, PoissonArrivals
from engine.simulator.serving.lengths import FixedLength, LogNormalLength, UniformLength

COUNT = 40_000


def first_gaps(arrivals, seed=3):
    return list(islice(arrivals.gaps(Random(seed)), COUNT))


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        (PoissonArrivals(5.0), 1.0),
        (GammaArrivals(5.0, 0.5), 0.5),
        (GammaArrivals(5.0, 2.0), 2.0),
        (GammaArrivals(5.0, 0.0), 0.0),
    ],
)
def test_gaps_have_their_rate_and_spread(arrivals, cv):
    gaps = first_gaps(arrivals)
    assert fmean(gaps) == pytest.approx(0.2, rel=0.04)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.05, abs=1e-9)
    assert first_gaps(arrivals) == gaps
    assert cv == 0 or first_gaps(arrivals, seed=4) != gaps


def test_clients_think_as_long_as_they_should():
    drawn = Random(1)
    assert ClosedLoop(3, 2.5).think(drawn) == 2.5
    exponential = ClosedLoop(3, 2.5, exponential=True)
    thoughts = [exponential.think(drawn) for _ in range(COUNT)]
    assert fmean(thoughts) == pytest.approx(2.5, rel=0.03)
    assert pstdev(thoughts) == pytest.approx(2.5, rel=0.03)
    assert ClosedLoop(3, 0, exponential=True).think(drawn) == 0


def test_lengths_have_their_moments():
    drawn = Random(2)
    assert {FixedLength(7).draw(drawn) for _ in range(10)} == {7}
    uniform = [UniformLength(10, 20).draw(drawn) for _ in range(COUNT)]
    assert (min(uniform), max(uniform)) == (10, 20)
    assert fmean(uniform) == pytest.approx(15, rel=0.01)
    normal = [LogNormalLength(300, 0.8).draw(drawn) for _ in range(COUNT)]
    assert fmean(normal) == pytest.approx(300, rel=0.02)
    assert pstdev(normal) / fmean(normal) == pytest.approx(0.8, rel=0.05)


def test_lengths_stay_in_their_bounds():
    drawn = Random(2)
    lengths = [LogNormalLength(10, 5.0, most=50).draw(drawn) for _ in range(5000)]
    assert min(lengths) >= 1
    assert max(lengths) == 50


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: PoissonArrivals(0), "rate"),
        (lambda: PoissonArrivals(float("nan")), "rate"),
        (lambda: GammaArrivals(1, -1), "cv"),
        (lambda: ClosedLoop(0), "clients"),
        (lambda: ClosedLoop(True), "clients"),
        (lambda: ClosedLoop(1, -1), "think_s"),
        (lambda: FixedLength(0), "tokens"),
        (lambda: UniformLength(5, 4), "high"),
        (lambda: LogNormalLength(0.5), "mean"),
        (lambda: LogNormalLength(50, 1, most=10), "most"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(make, field):
    with pytest.raises(InvalidRequest) as refused:
        make()
    assert refused.value.field == field
