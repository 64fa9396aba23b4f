"""Typical times with their intervals, beside the ideal ones of the same scenario."""

from __future__ import annotations

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
