"""The benchmark of the serving simulation: it measures what it says, and its results are kept."""

from __future__ import annotations

import json

from tests.benchmarks.serving import LEAST, RESULTS, document, measure_memory, measure_speed


def test_it_measures_the_same_service_both_ways():
    fast = measure_speed("ideal", 30, step_by_step=False)
    slow = measure_speed("ideal", 30, step_by_step=True)
    assert fast.mean_batch == slow.mean_batch
    assert fast.requests_per_s > 0
    written = document([fast, slow], [measure_memory(10)])
    assert json.loads(json.dumps(written))["speed"][0]["requests"] == 30


def test_the_recorded_run_meets_the_least_and_its_memory_is_flat():
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    fast = [speed for speed in recorded["speed"] if not speed["step_by_step"]]
    assert len(fast) == 2
    for speed in fast:
        assert 30 <= speed["mean_batch"] <= 35
        assert speed["requests_per_s"] >= LEAST
    few, many = recorded["memory"]
    assert many["requests"] == 20 * few["requests"]
    assert many["peak_bytes"] < few["peak_bytes"] + 5_000_000
