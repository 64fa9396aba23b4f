"""Typical times with their intervals, beside the ideal ones of the same scenario."""

from __future__ import annotations

from typing import Any

import pytest

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.scheduling.plan import SequenceShape
from engine.simulator.intervals import Metric, interval
from engine.simulator.scenario import Scenario, simulate
from engine.simulator.typical import TypicalCostModel


def test_a_result_has_ideal_times_and_intervals() -> None:
    report = simulate(Scenario("llama-3.1-8b", "h100-sxm", batch=4, output_tokens=64))
    ideal, typical = report.ideal, report.typical
    assert ideal.ttft < typical.ttft.value
    assert typical.tpot is not None
    assert ideal.tpot is not None
    assert ideal.tpot < typical.tpot.value
    for estimate in (typical.ttft, typical.tpot, typical.e2e, typical.tokens_per_s):
        assert estimate.p10 < estimate.value < estimate.p90
    assert typical.tokens_per_s.value == pytest.approx(4 * 64 / typical.e2e.value)
    single = simulate(Scenario("llama-3.1-8b", "h100-sxm", output_tokens=1)).typical
    assert single.tpot is None
    assert single.e2e.value == pytest.approx(single.ttft.value)


def test_intervals_are_those_of_the_kind_of_number() -> None:
    hardware = get_hardware("h100-sxm")
    for batch, step in ((1, Metric.DECODE), (8, Metric.BATCHED)):
        found = simulate(Scenario("llama-3.1-8b", "h100-sxm", batch=batch)).typical
        assert found.tpot is not None
        low, high = interval(step, hardware)
        assert found.tpot.p10 == pytest.approx(low * found.tpot.value)
        assert found.tpot.p90 == pytest.approx(high * found.tpot.value)


def test_typical_times_are_prefill_with_its_overhead_and_steps() -> None:
    model = TypicalCostModel(get_model("llama-3.1-8b"), get_hardware("h100-sxm"))
    scenario = Scenario("llama-3.1-8b", "h100-sxm", batch=2, prompt_tokens=300, output_tokens=3)
    found = simulate(scenario).typical
    prefill = model.cost([SequenceShape(0, 300, True)] * 2).time
    assert found.ttft.value == pytest.approx(prefill + model.first_token_overhead)
    assert found.tpot is not None
    assert found.e2e.value == pytest.approx(found.ttft.value + 2 * found.tpot.value)


def test_a_whole_answer_is_as_sure_as_its_parts() -> None:
    found = simulate(Scenario("llama-3.1-8b", "h100-sxm", output_tokens=256)).typical
    assert found.tpot is not None
    low, high = interval(Metric.LATENCY, get_hardware("h100-sxm"))
    for end, factor in (("p10", low), ("p90", high)):
        parts = getattr(found.ttft, end) + 255 * getattr(found.tpot, end)
        assert getattr(found.e2e, end) == pytest.approx(parts)
        assert abs(parts - found.e2e.value) < abs(factor - 1) * found.e2e.value
    assert found.tokens_per_s.p10 == pytest.approx(256 / found.e2e.p90)
    assert found.tokens_per_s.p90 == pytest.approx(256 / found.e2e.p10)
    assert "add them" in found.whole_words


def test_whole_batches_were_measured_too_and_the_narrower_bounds_count() -> None:
    hardware = get_hardware("mi300x")
    found = simulate(Scenario("llama-3.1-8b", "mi300x", batch=8, output_tokens=2)).typical
    low, high = interval(Metric.BATCHED, hardware)
    start = interval(Metric.TTFT, hardware)
    assert high / low < start[1] / start[0]
    assert found.e2e.p10 == pytest.approx(low * found.e2e.value)
    assert found.e2e.p90 == pytest.approx(high * found.e2e.value)
    assert "measured" in found.whole_words


def test_the_document_says_where_the_bounds_of_a_whole_answer_come_from() -> None:
    report = simulate(Scenario("llama-3.1-8b", "h100-sxm", output_tokens=256))
    document: Any = report.to_document()
    for name in ("e2e", "tokens_per_s"):
        assert document["typical"][name]["formula"].endswith(report.typical.whole_words)
    assert report.typical.whole_words not in document["ideal"]["e2e"]["formula"]
