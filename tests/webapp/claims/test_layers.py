"""C09's verdict, from numbers that are made up: each branch happens."""

from __future__ import annotations

import pytest

from webapp.claims.checks.layers import Found, change_across, judge
from webapp.claims.claim import Verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Found(layers=30, matrices=3, change=0.0), Verdict.CAVEAT),
        (Found(layers=12, matrices=2, change=0.0), Verdict.CAVEAT),
        (Found(layers=36, matrices=2, change=0.0), Verdict.RIGHT),
        (Found(layers=32, matrices=2, change=0.01), Verdict.WRONG),
    ],
)
def test_the_verdict(found: Found, verdict: Verdict) -> None:
    assert judge(found) is verdict


def test_the_change_is_the_largest_of_all_positions() -> None:
    norms = [[1.0, 2.0], [1.0, 2.0], [1.5, 2.2]]
    assert change_across(norms, 0) == 0
    assert change_across(norms, 1) == pytest.approx(0.5)
