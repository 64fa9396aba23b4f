"""Closed forms of prefill and decode, against the scheduling loop and against simulations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.errors import InvalidRequest, UnknownName
from engine.scheduling.blocks import BlockPool
from engine.scheduling.latency import LatencyRecorder
from engine.scheduling.loop import SchedulingLoop, VirtualClock
from engine.scheduling.plan import SequenceShape
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from engine.simulator.deployment import Deployment
from engine.simulator.features import Disaggregation, Features, Offload, Speculation
from engine.simulator.layout import Layout
from engine.simulator.phases import Prompts, decode, prefill
from engine.simulator.roofline_executor import DraftAcceptance, RooflineExecutor
from engine.simulator.run import Batch, run_batch
from engine.simulator.scenario import Scenario, simulate
from engine.simulator.step_cost import StepCostModel

H100 = get_hardware("h100-sxm")
MODEL = StepCostModel(get_model("llama-3.1-8b"), H100)
PLAIN = Features()
LLAMA = Deployment("llama-3.1-8b", "h100-sxm")
LLAMA_70B = Deployment("llama-3.1-70b", "h100-sxm", Layout(tensor=4))


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "gpt-oss-20b"])
@pytest.mark.parametrize("batch", [Batch(1, 512, 128), Batch(16, 700, 40), Batch(3, 100, 1)])
def test_without_features_it_is_the_loop(model: str, batch: Batch) -> None:
    run = run_batch(Deployment(model, "h100-sxm"), batch, PLAIN)
    loop = simulate(
        Scenario(
            model,
            "h100-sxm",
            batch=batch.requests,
            prompt_tokens=batch.prompt_tokens,
            output_tokens=batch.output_tokens,
        )
    )
    assert run.ttft == pytest.approx(loop.ttft, rel=1e-9)
    assert run.e2e == pytest.approx(loop.makespan, rel=2e-4)
    assert run.tokens_per_s == pytest.approx(loop.tokens_per_s, rel=2e-4)
    if loop.itl is None:
        assert run.tpot is None
    else:
        assert run.tpot == pytest.approx(loop.itl, rel=2e-4)


def _loop(batch: Batch, chunk: int) -> LatencyRecorder:
    """The scheduler itself, with steps of ``chunk`` tokens at most."""
    limits = SchedulerLimits(
        max_running=batch.requests,
        max_waiting=batch.requests,
        max_step_tokens=chunk,
        max_context=batch.prompt_tokens + batch.output_tokens,
    )
    recorder = LatencyRecorder()
    scheduler = Scheduler(BlockPool(100_000, 16), limits)
    loop = SchedulingLoop(scheduler, RooflineExecutor(MODEL), VirtualClock(), recorder.record)
    for index in range(batch.requests):
        loop.add(Request(str(index), range(batch.prompt_tokens), batch.output_tokens))
    while loop.has_work:
        loop.step()
    return recorder


@pytest.mark.parametrize(
    ("batch", "chunk"),
    [
        (Batch(1, 4096, 64), 512),
        (Batch(1, 4000, 64), 512),
        (Batch(1, 50_000, 8), 512),
        (Batch(8, 4096, 64), 512),
        (Batch(6, 3000, 64), 1000),
        (Batch(12, 512, 64), 2048),
        (Batch(10, 512, 64), 2100),
    ],
)
def test_chunks_are_what_the_scheduler_makes_of_them(batch: Batch, chunk: int) -> None:
    run = run_batch(LLAMA, batch, Features(chunk_tokens=chunk))
    recorder = _loop(batch, chunk)
    ttft = recorder.mean_ttft()
    end = max(request.token_times[-1] for request in recorder.requests.values())
    assert ttft is not None
    # A scheduler fills up the steps where one prompt ends with the next.
    rel = 1e-3 if batch.requests == 1 else 0.12
    assert run.ttft == pytest.approx(ttft, rel=rel)
    assert run.e2e == pytest.approx(end, rel=rel)


def test_chunks_trade_the_first_token_for_shorter_gaps() -> None:
    batch = Batch(8, 8192, 64)
    whole, chunked = (
        run_batch(LLAMA, batch, Features(chunk_tokens=chunk)) for chunk in (None, 1024)
    )
    assert chunked.prefill.gap < 0.25 * whole.prefill.gap
    assert chunked.prefill.total > whole.prefill.total


@settings(deadline=None, max_examples=30)
@given(
    prompt=st.integers(2, 20_000),
    rate=st.floats(0, 1),
    more=st.floats(0, 1),
)
def test_a_better_hit_rate_is_never_slower(prompt: int, rate: float, more: float) -> None:
    low, high = sorted((rate, more))
    slow, fast = (
        run_batch(LLAMA, Batch(2, prompt, 4), Features(prefix_hit_rate=hit)) for hit in (low, high)
    )
    assert fast.ttft <= slow.ttft * (1 + 1e-12)
    assert fast.tpot == slow.tpot
    cached = fast.prompts.cached
    assert cached % 16 == 0
    assert cached <= min(prompt * high, prompt - 1) < cached + 16


def test_a_hit_is_a_prompt_with_a_past() -> None:
    run = run_batch(LLAMA, Batch(4, 1600, 8), Features(prefix_hit_rate=0.5))
    assert run.ttft == MODEL.cost([SequenceShape(800, 800, True)] * 4).time


@pytest.mark.parametrize(("drafts", "acceptance"), [(1, 0.5), (4, 0.7), (8, 0.95), (3, 1.0)])
def test_tokens_of_a_speculative_step_are_those_of_a_simulation(
    drafts: int, acceptance: float
) -> None:
    dice = DraftAcceptance(acceptance, seed=7)
    count = 20_000
    mean = sum(1 + dice.accepted(drafts) for _ in range(count)) / count
    assert Speculation(drafts, acceptance).tokens_per_step == pytest.approx(mean, rel=0.02)


def test_verifying_is_free_below_the_ridge_and_not_beyond() -> None:
    look_up = Speculation(4, 0.7)
    alone = decode(MODEL, 1, 1000, 100, look_up)
    assert alone.step == pytest.approx(alone.plain, rel=0.02)
    assert alone.speedup == pytest.approx(look_up.tokens_per_step, rel=0.02)
    crowd = decode(MODEL, 512, 200, 100, look_up)
    # 2,560 positions are far beyond the ridge of 295 FLOP/B.
    assert crowd.step > 2.5 * crowd.plain
    assert crowd.speedup < 1


def test_drafts_cost_their_model_or_their_fraction() -> None:
    plain = decode(MODEL, 2, 500, 64)
    part = decode(MODEL, 2, 500, 64, Speculation(4, 0.7, draft_fraction=0.1))
    assert part.drafting == pytest.approx(0.4 * plain.step)
    drafter = StepCostModel(get_model("llama-3.2-1b"), H100)
    own = decode(MODEL, 2, 500, 64, Speculation(4, 0.7), drafter)
    assert own.drafting == pytest.approx(4 * decode(drafter, 2, 500, 64).step, rel=0.01)
    run = run_batch(
        LLAMA, Batch(2, 500, 65), Features(speculation=Speculation(4, 0.7, "llama-3.2-1b"))
    )
    assert run.decode is not None
    assert run.decode.drafting == pytest.approx(own.drafting, rel=1e-6)


def test_an_unknown_drafter_is_named() -> None:
    with pytest.raises(UnknownName) as refused:
        run_batch(LLAMA, Batch(1, 10, 10), Features(speculation=Speculation(4, 0.7, "gpt-5")))
    assert refused.value.field == "speculation.draft_model"


def test_stages_divide_a_batch_and_not_a_request() -> None:
    one = Deployment("llama-3.1-70b", "h200-sxm")
    four = Deployment("llama-3.1-70b", "h200-sxm", Layout(stages=4))
    alone = [run_batch(item, Batch(1, 4000, 32), PLAIN).ttft for item in (one, four)]
    assert alone[1] == pytest.approx(alone[0], rel=1e-3)
    many = [run_batch(item, Batch(16, 4000, 32), PLAIN) for item in (one, four)]
    # Four microbatches through four stages take 7 / 16 of the time.
    assert many[1].ttft / many[0].ttft == pytest.approx(7 / 16, rel=0.02)
    # Chunks of one prompt follow each other through the stages.
    chunked = run_batch(four, Batch(1, 4096, 32), Features(chunk_tokens=512))
    assert chunked.ttft < 0.5 * alone[1]


@settings(deadline=None, max_examples=40)
@given(
    batch=st.builds(Batch, st.integers(1, 20), st.integers(1, 8000), st.just(16)),
    stages=st.sampled_from([1, 2, 4, 5]),
    chunk=st.none() | st.sampled_from([256, 1000, 4096]),
)
def test_no_division_computes_faster_than_its_devices(
    batch: Batch, stages: int, chunk: int | None
) -> None:
    deployment = Deployment("llama-3.1-8b", "h100-sxm", Layout(stages=stages))
    run = run_batch(deployment, batch, Features(chunk_tokens=chunk))
    prompts = [SequenceShape(0, batch.prompt_tokens, True)] * batch.requests
    least = MODEL.cost(prompts).flops / (stages * 989e12)
    assert run.prefill.total > least
    assert run.prefill.mean <= run.prefill.total * (1 + 1e-12)


def test_a_cache_comes_back_faster_than_it_is_computed() -> None:
    features = Features(prefix_hit_rate=0.9, offload=Offload(63))
    run = run_batch(LLAMA, Batch(1, 16_384, 8), features)
    restored = run.restored
    assert restored is not None
    assert restored.in_ttft
    assert restored.bytes == restored.tokens * 131_072
    assert restored.bring_back == pytest.approx(restored.bytes / 63e9)
    assert restored.recompute > restored.bring_back
    without = run_batch(LLAMA, Batch(1, 16_384, 8), Features(prefix_hit_rate=0.9))
    assert run.ttft == pytest.approx(without.ttft + restored.bring_back)
    # Without a hit it tells what bringing a preempted request back would take.
    preempted = run_batch(LLAMA, Batch(1, 16_384, 8), Features(offload=Offload(63)))
    assert preempted.restored is not None
    assert not preempted.restored.in_ttft
    assert preempted.ttft == run_batch(LLAMA, Batch(1, 16_384, 8), PLAIN).ttft


def test_devices_bring_their_part_of_the_cache_back() -> None:
    run = run_batch(LLAMA_70B, Batch(1, 16_384, 8), Features(offload=Offload(63)))
    assert run.restored is not None
    # 8 key-value heads on 4 devices.
    assert run.restored.bytes == 16_384 * 2 * 80 * 2 * 128 * 2


def test_a_prefill_group_sends_its_caches() -> None:
    batch = Batch(4, 8000, 101)
    features = Features(disaggregation=Disaggregation(8, 50))
    run, plain = run_batch(LLAMA_70B, batch, features), run_batch(LLAMA_70B, batch, PLAIN)
    assert run.transfer is not None
    moved = 8000 * 2 * 80 * 8 * 128 * 2
    assert run.transfer.bytes == moved
    assert run.transfer.links == 4
    assert run.transfer.time == pytest.approx(4 * moved / 4 / 50e9)
    assert run.ttft < plain.ttft
    assert run.decode == plain.decode
    assert run.tpot is not None
    assert plain.tpot is not None
    assert run.tpot - plain.tpot == pytest.approx(run.transfer.time / 100)
    assert run.decode is not None
    assert run.transfer.groups == pytest.approx(run.prefill.total / (100 * run.decode.tpot))


def test_typical_is_slower_than_ideal_with_all_features() -> None:
    features = Features(1024, 0.3, Speculation(), Offload(), Disaggregation())
    batch = Batch(8, 3000, 100)
    ideal = run_batch(LLAMA_70B, batch, features)
    typical = run_batch(
        Deployment("llama-3.1-70b", "h100-sxm", Layout(tensor=4), times="typical"), batch, features
    )
    assert typical.ttft > ideal.ttft
    assert typical.e2e > ideal.e2e
    assert typical.first_token > 0
    assert ideal.first_token == 0


def test_groups_share_the_requests() -> None:
    two = Deployment("llama-3.1-8b", "h100-sxm", Layout(data=2))
    run = run_batch(two, Batch(9, 512, 32), PLAIN)
    one = run_batch(LLAMA, Batch(5, 512, 32), PLAIN)
    assert run.group_requests == 5
    assert run.e2e == one.e2e
    assert run.tokens_per_s == pytest.approx(one.tokens_per_s * 9 / 5)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Features(chunk_tokens=0), "chunk_tokens"),
        (lambda: Features(prefix_hit_rate=1.1), "prefix_hit_rate"),
        (lambda: Features(prefix_hit_rate=float("nan")), "prefix_hit_rate"),
        (lambda: Speculation(drafts=0), "speculation.drafts"),
        (lambda: Speculation(acceptance=-0.1), "speculation.acceptance"),
        (lambda: Speculation(draft_fraction=-1), "speculation.draft_fraction"),
        (lambda: Offload(0), "offload.link_gb_s"),
        (lambda: Disaggregation(0), "disaggregation.devices"),
        (lambda: Disaggregation(None, 0), "disaggregation.link_gb_s"),
    ],
)
def test_wrong_values_name_their_field(make, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        make()
    assert refused.value.field == field


def test_the_mean_of_chunked_prompts_is_that_of_a_queue() -> None:
    """Equal prompts one after the other: the mean of b waits is (b + 1) / 2 of one."""
    queue = prefill(MODEL, Prompts(5, 0, 4096, 4096))
    one = prefill(MODEL, Prompts(1, 0, 4096, 4096))
    assert queue.total == pytest.approx(5 * one.total, rel=0.02)
    assert queue.mean == pytest.approx(3 * one.total, rel=0.02)
