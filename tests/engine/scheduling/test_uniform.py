"""Steps of plain decoding booked at once, or beside those that start, leave the same state."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduling.blocks import BlockPool
from engine.scheduling.limits import SchedulerLimits
from engine.scheduling.loop import SchedulingLoop, VirtualClock
from engine.scheduling.plan import Phase, Sample, StepPlan, StepResult
from engine.scheduling.policies import POLICIES
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import FinishReason, Request
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings

TOKEN = 0


class Sampling:
    """Every sequence that samples says the same token."""

    def execute(self, plan: StepPlan) -> StepResult:
        samples = tuple(Sample(s.request_id, TOKEN, 0.0) for s in plan.sequences if s.samples)
        return StepResult(samples, duration=1.0)

    def release(self, request_id: str) -> None: ...


def make(lengths, num_blocks=40, cache=False, policy="first-come", **limits) -> SchedulingLoop:
    pool = BlockPool(num_blocks, 4, prefix_cache=PrefixCache() if cache else None)
    scheduler = Scheduler(pool, SchedulerLimits(**limits), POLICIES[policy]())
    loop = SchedulingLoop(scheduler, Sampling(), VirtualClock(), lambda _: None)
    for index, (prompt, output) in enumerate(lengths):
        tokens = [100 * index + i for i in range(prompt)]
        loop.add(Request(str(index), tokens, output))
    return loop


def state(loop):
    scheduler = loop.scheduler
    rows = [
        (r.request_id, r.num_computed_tokens, len(r.output_token_ids), len(r.block_table))
        for r in (*scheduler.running, *scheduler.waiting)
    ]
    return rows, scheduler.pool.num_used, scheduler.pool.num_cached, scheduler.pool.num_free


def go_on(loop):
    """The next steps in the fastest way; how many they were."""
    scheduler = loop.scheduler
    steps = scheduler.uniform_steps()
    if not steps:
        loop.step()
        return 1
    if not scheduler.could_start():
        ended = scheduler.advance(steps, TOKEN)
    else:
        steps = 1
        running = list(scheduler.running)
        assert loop.step(beside=True)
        ended = scheduler.advance(1, TOKEN, running)
    for request in ended:
        loop.finish(request.request_id, FinishReason.LENGTH)
    return steps


request_lengths = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 30)), min_size=1, max_size=9
)


@settings(max_examples=150, deadline=None)
@given(
    request_lengths,
    st.integers(11, 40),
    st.booleans(),
    st.sampled_from(["first-come", "shortest-first", "fair"]),
    st.integers(1, 9),
    st.sampled_from([4, 16, 64]),
)
def test_the_state_is_that_of_single_steps(lengths, num_blocks, cache, policy, places, budget):
    options = {
        "num_blocks": num_blocks,
        "cache": cache,
        "policy": policy,
        "max_running": places,
        "max_step_tokens": budget,
    }
    fast, slow = make(lengths, **options), make(lengths, **options)
    while slow.has_work:
        for _ in range(go_on(fast)):
            slow.step()
        fast.scheduler.check_integrity()
        assert state(fast) == state(slow)
    assert not fast.has_work


def test_a_stretch_ends_where_somebody_ends_or_blocks_do():
    loop = make([(4, 10), (4, 6)])
    loop.step()
    assert loop.scheduler.uniform_steps() == 5
    # Each has a full block and needs a second one at once, and the fourth one is the last there is.
    short = make([(4, 8), (4, 8)], num_blocks=4)
    short.step()
    assert short.scheduler.uniform_steps() == 4


@pytest.mark.parametrize(
    "change",
    [
        {"stop_token_ids": frozenset({5})},
        {"speculation": SpeculationSettings(SpeculationMethod.NGRAM)},
    ],
)
def test_whoever_may_stop_or_drafts_takes_single_steps(change):
    loop = make([(4, 10)])
    loop.step()
    assert loop.scheduler.uniform_steps() == 9
    for name, value in change.items():
        setattr(loop.scheduler.running[0], name, value)
    assert loop.scheduler.uniform_steps() == 0


def test_a_prompt_in_parts_takes_single_steps():
    loop = make([(12, 3)], max_step_tokens=5)
    loop.step()
    assert loop.scheduler.uniform_steps() == 0


@pytest.mark.parametrize("options", [{"keep_computed": False}, {"max_session_kv_blocks": 30}])
def test_other_rules_take_single_steps(options):
    loop = make([(4, 10)], **options)
    loop.step()
    assert loop.scheduler.uniform_steps() == 0


# ── prompts that are not split ───────────────────────────────────────────────────────────────


def planned(loop):
    plan = loop.scheduler.plan().plan
    assert plan is not None
    result = loop.executor.execute(plan)
    for request, samples in loop.scheduler.commit(plan, result):
        loop.scheduler.append(request, samples[0].token_id)
    return plan


def test_whole_prompts_run_alone_and_within_the_budget():
    loop = make([(6, 5), (6, 5), (9, 5)], max_step_tokens=12, split_prompts=False)
    first = planned(loop)
    assert [s.num_tokens for s in first.sequences] == [6, 6]
    second = planned(loop)  # the others wait while the third one's prompt runs
    assert [(s.request_id, s.num_tokens) for s in second.sequences] == [("2", 9)]
    third = planned(loop)
    assert {s.phase for s in third.sequences} == {Phase.DECODE}
    assert len(third.sequences) == 3


def test_a_prompt_larger_than_the_budget_runs_whole():
    loop = make([(30, 2)], max_step_tokens=8, split_prompts=False)
    assert planned(loop).num_tokens == 30


@settings(max_examples=60, deadline=None)
@given(request_lengths, st.integers(11, 20))
def test_everybody_gets_all_tokens_without_splitting_too(lengths, num_blocks):
    loop = make(lengths, num_blocks=num_blocks, split_prompts=False, max_step_tokens=16)
    steps = 0
    while loop.has_work:
        assert loop.step()
        loop.scheduler.check_integrity()
        steps += 1
        assert steps < 5000
