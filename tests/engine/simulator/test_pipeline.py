"""Stages: bubbles against a simulation of the pipeline, and what a division does to a step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.catalog.models import get_model
from engine.errors import InvalidRequest
from engine.scheduling.plan import SequenceShape
from engine.simulator.deployment import Deployment, Times
from engine.simulator.layout import Layout, Route
from engine.simulator.pipeline import Pipeline, PipelinedCost, PipelinedCostModel
from engine.simulator.step_cost import StepCostModel
from tests.engine.simulator.cases import device, tiny


def _finish(stage_times: list[float], microbatches: int) -> list[float]:
    """When each microbatch leaves the last stage: stages work on one at a time, in order."""
    free = [0.0] * len(stage_times)
    ends: list[float] = []
    for _ in range(microbatches):
        now = 0.0
        for stage, time in enumerate(stage_times):
            now = max(now, free[stage]) + time
            free[stage] = now
        ends.append(now)
    return ends


def _stage_times(pipeline: Pipeline, latency: float) -> list[float]:
    base, more = divmod(pipeline.layers, pipeline.stages)
    counts = [base + 1] * more + [base] * (pipeline.stages - more)
    return [latency * count / pipeline.layers for count in counts]


@given(stages=st.integers(1, 12), extra=st.integers(0, 90), microbatches=st.integers(1, 20))
def test_an_empty_pipeline_fills_as_simulated(stages: int, extra: int, microbatches: int) -> None:
    pipeline = Pipeline(stages, stages + extra)
    ends = _finish(_stage_times(pipeline, 2.0), microbatches)
    assert pipeline.from_empty(2.0, microbatches) == pytest.approx(ends[-1])
    idle = 1 - microbatches * 2.0 / (stages * ends[-1])
    assert pipeline.bubble(microbatches) == pytest.approx(idle, abs=1e-12)


@given(stages=st.integers(1, 12), extra=st.integers(0, 90), microbatches=st.integers(1, 12))
def test_the_steady_state_is_as_simulated(stages: int, extra: int, microbatches: int) -> None:
    """Each microbatch comes back for its next step when the last stage has let it go."""
    pipeline = Pipeline(stages, stages + extra)
    times = _stage_times(pipeline, 2.0)
    free, ready = [0.0] * stages, [0.0] * microbatches
    ends: list[float] = []
    for _ in range(60):
        for index in range(microbatches):
            now = ready[index]
            for stage, time in enumerate(times):
                now = max(now, free[stage]) + time
                free[stage] = now
            ready[index] = now
        ends.append(ready[-1])
    assert (ends[-1] - ends[19]) / 40 == pytest.approx(pipeline.steady(2.0, microbatches))


def test_the_bubble_of_even_stages_is_the_known_one() -> None:
    for stages, microbatches in ((4, 1), (4, 8), (8, 8)):
        bubble = (stages - 1) / (microbatches + stages - 1)
        assert Pipeline(stages, 8 * stages).bubble(microbatches) == pytest.approx(bubble)
    # 61 layers on 4 stages: the slowest holds 16.
    assert Pipeline(4, 61).slowest == 16 / 61


def test_one_request_gains_no_time_and_a_batch_does() -> None:
    layout = Layout(stages=4)
    one = Deployment("llama-3.1-70b", "h100-sxm").cost_model()
    four = Deployment("llama-3.1-70b", "h100-sxm", layout).cost_model()
    assert isinstance(four, PipelinedCostModel)
    alone = [SequenceShape(1000, 1, True)]
    # The hidden state of a token, 8,192 numbers of two bytes, goes to the next stage three times.
    assert four.cost(alone).time - one.cost(alone).time == pytest.approx(3 * 16_384 / 450e9)
    prompts = [SequenceShape(0, 2000, True)] * 8
    ratio = one.cost(prompts).time / four.cost(prompts).time
    assert 3.7 < ratio < 4
    step = four.cost(prompts)
    assert step.microbatches == 4
    assert step.time_from_empty / step.time == pytest.approx(7 / 4)
    assert step.flops == pytest.approx(one.cost(prompts).flops)
    # Four microbatches read the weights four times.
    weights = 2 * (70_553_706_496 - 128_256 * 8192)
    assert step.bytes - one.cost(prompts).bytes == pytest.approx(3 * weights, rel=1e-3)


@settings(deadline=None, max_examples=40)
@given(
    batch=st.lists(
        st.builds(
            SequenceShape, st.integers(0, 3000), st.integers(1, 400), st.just(True), st.just(0)
        ),
        min_size=1,
        max_size=9,
    ),
    stages=st.integers(2, 4),
)
def test_a_divided_step_has_all_the_work(batch: list[SequenceShape], stages: int) -> None:
    model = get_model("gemma-3-1b")
    whole = StepCostModel(model, device(), layout=Layout(stages=stages))
    divided = PipelinedCostModel(whole, Layout(stages=stages)).cost(batch)
    assert isinstance(divided, PipelinedCost)
    assert divided.flops == pytest.approx(whole.cost(batch).flops)
    assert divided.time <= whole.cost(batch).time * (1 + 1 / 26) * stages
    assert divided.time >= whole.cost(batch).time / stages
    assert divided.time <= divided.time_from_empty * (1 + 1e-12)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        StepCostModel(tiny(), device(), layout=Layout(stages=3))
    assert refused.value.field == "stages"


@pytest.mark.parametrize(
    ("layout", "crossing"),
    [
        (Layout(tensor=8), set()),
        (Layout(tensor=8, per_node=8), set()),
        (Layout(tensor=16, per_node=8), set(Route)),
        (Layout(tensor=8, stages=2, per_node=8), {Route.STAGE, Route.EXCHANGE}),
        (Layout(tensor=4, stages=2, data=2, per_node=8), {Route.EXCHANGE}),
    ],
)
def test_neighbours_talk_within_a_node(layout: Layout, crossing: set[Route]) -> None:
    assert {route for route in Route if layout.leaves_node(route)} == crossing


@pytest.mark.parametrize("times", ["ideal", "typical"])
def test_a_group_larger_than_a_node_talks_over_the_network(times: Times) -> None:
    prompts = [SequenceShape(0, 4000, True)]
    near, far = (
        Deployment("llama-3.1-405b", "h100-sxm", Layout(tensor=16, per_node=node), times=times)
        for node in (None, 8)
    )
    assert far.cost_model().cost(prompts).time > 1.2 * near.cost_model().cost(prompts).time
