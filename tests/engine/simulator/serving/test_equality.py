"""Stretches taken in one go give what step by step gives."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduling.events import RequestFinished, StepCompleted, TokenProduced
from engine.simulator.deployment import Deployment
from engine.simulator.layout import Layout
from engine.simulator.serving.arrivals import ClosedLoop, GammaArrivals, PoissonArrivals
from engine.simulator.serving.lengths import FixedLength, LogNormalLength, UniformLength
from engine.simulator.serving.routing import Routing
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.settings import EngineSettings, ServiceLevel
from engine.simulator.serving.simulation import simulate_serving
from engine.simulator.serving.unit import MOST_STEPS, UnitRecorder
from engine.simulator.serving.workload import PrefixGroups, Workload

MODELS = ("llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "gemma-2-9b")

arrivals = st.one_of(
    st.builds(PoissonArrivals, st.floats(1, 200)),
    st.builds(GammaArrivals, st.floats(1, 200), st.floats(0, 4)),
    st.builds(ClosedLoop, st.integers(1, 12), st.floats(0, 0.2), st.booleans()),
)
lengths = st.one_of(
    st.builds(FixedLength, st.integers(1, 90)),
    st.builds(UniformLength, st.integers(1, 20), st.integers(20, 90)),
    st.builds(LogNormalLength, st.floats(1, 60), st.floats(0, 2), st.just(120)),
)


@st.composite
def scenarios(draw):
    engine = EngineSettings(
        max_running=draw(st.integers(1, 16)),
        max_step_tokens=draw(st.sampled_from([8, 64, 2048])),
        chunked_prefill=draw(st.booleans()),
        prefix_caching=draw(st.booleans()),
        policy=draw(st.sampled_from(["first-come", "shortest-first", "fair"])),
        # 210 tokens are the longest request: 14 blocks, so that some always fit and most compete.
        kv_blocks=draw(st.sampled_from([14, 20, 40, 4000])),
    )
    prefixes = draw(st.none() | st.builds(PrefixGroups, st.integers(1, 3), st.integers(1, 80)))
    return ServingScenario(
        Deployment("llama-3.1-8b", "h100-sxm"),
        Workload(draw(arrivals), draw(lengths), draw(lengths), draw(st.integers(1, 40)), prefixes),
        engine,
        replicas=draw(st.integers(1, 3)),
        routing=draw(st.sampled_from(Routing)),
        slo=ServiceLevel(ttft_s=0.05, tpot_s=0.01),
        seed=draw(st.integers(0, 5)),
    )


def run(scenario, **options):
    requests = []
    result = simulate_serving(scenario, on_request=requests.append, **options)
    return sorted(requests), result


def assert_equal(one, other):
    (requests, result), (others, reference) = one, other
    assert requests == others  # every time of every request, to the bit
    assert result.itl == reference.itl or result.itl.percentiles == pytest.approx(
        reference.itl.percentiles, rel=1e-9
    )
    assert asdict(result.totals) == pytest.approx(asdict(reference.totals), rel=1e-9)
    for name, means in result.series.means.items():
        assert means == pytest.approx(reference.series.means[name], rel=1e-9, abs=1e-9)
    assert result.mfu == pytest.approx(reference.mfu, rel=1e-9)
    assert result.mbu == pytest.approx(reference.mbu, rel=1e-9)


def test_a_long_answer_is_told_in_stretches_of_bounded_length(monkeypatch):
    told = []
    stretch = UnitRecorder.stretch

    def hear(self, one, *others):
        told.append(len(one.ends))
        stretch(self, one, *others)

    monkeypatch.setattr(UnitRecorder, "stretch", hear)
    scenario = ServingScenario(
        Deployment("llama-3.1-8b", "h100-sxm"),
        Workload(PoissonArrivals(1), FixedLength(10), FixedLength(2 * MOST_STEPS), 1),
    )
    fast = run(scenario)
    assert told == [MOST_STEPS, MOST_STEPS - 1]  # the prompt's step gave the first token
    assert_equal(fast, run(scenario, step_by_step=True))


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_stretches_equal_steps(scenario):
    fast = run(scenario)
    assert_equal(fast, run(scenario, step_by_step=True))
    result = fast[1]
    assert result.littles_law.error < 1e-9
    assert result.totals.finished + result.totals.refused == scenario.workload.requests


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("times", ["ideal", "typical"])
def test_every_kind_of_attention(model, times):
    scenario = ServingScenario(
        Deployment(model, "h100-sxm", times=times, kv="bf16"),
        Workload(PoissonArrivals(30), UniformLength(1, 5000), FixedLength(60), 40),
        EngineSettings(max_running=16),
    )
    assert_equal(run(scenario), run(scenario, step_by_step=True))


@pytest.mark.parametrize("times", ["ideal", "typical"])
def test_stages_and_tensor_parallelism(times):
    scenario = ServingScenario(
        Deployment("llama-3.1-70b", "h100-sxm", Layout(tensor=2, stages=2), times=times),
        Workload(PoissonArrivals(20), UniformLength(1, 3000), FixedLength(40), 30),
        EngineSettings(max_step_tokens=512),
    )
    assert_equal(run(scenario), run(scenario, step_by_step=True))


def test_events_are_those_of_the_loop_and_change_nothing():
    scenario = ServingScenario(
        Deployment("llama-3.1-8b", "h100-sxm"),
        Workload(PoissonArrivals(50), FixedLength(100), FixedLength(20), 30),
        replicas=2,
    )
    events = []
    heard = run(scenario, on_event=lambda unit, event: events.append((unit, event)))
    assert_equal(run(scenario), heard)
    assert {unit for unit, _ in events} == {0, 1}
    kinds = [type(event) for _, event in events]
    assert kinds.count(TokenProduced) == 30 * 20
    assert kinds.count(RequestFinished) == 30
    assert kinds.count(StepCompleted) == heard[1].totals.steps


def test_the_same_seed_gives_the_same_run_and_another_one_another():
    def with_seed(seed):
        return ServingScenario(
            Deployment("llama-3.1-8b", "h100-sxm", times="typical"),
            Workload(GammaArrivals(20, 2), LogNormalLength(300), LogNormalLength(50), 60),
            seed=seed,
        )

    requests, result = run(with_seed(1))
    again, repeated = run(with_seed(1))
    assert requests == again
    assert result.to_document() == repeated.to_document()
    assert requests != run(with_seed(2))[0]
