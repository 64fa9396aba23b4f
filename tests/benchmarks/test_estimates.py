"""The bench of predictions measures what it says; its numbers are not judged here."""

from __future__ import annotations

import pytest

from tests.benchmarks.estimates import estimate_ms, rest_per_s


def test_one_estimate_takes_time() -> None:
    assert 0 < estimate_ms(repeats=3) < 1000


@pytest.mark.serial
def test_the_server_answers_estimates() -> None:
    assert rest_per_s(0.5, connections=2) > 1
