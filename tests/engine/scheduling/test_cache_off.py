"""The cache switched off: every step runs the whole text, and the tokens are the same."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest
from engine.scheduling.events import RequestPreempted, RequestStarted, StepCompleted
from engine.scheduling.policies import POLICIES
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.engine.scheduling.fakes import (
    expected_output,
    make_loop,
    make_request,
    outputs_of,
    run_to_end,
)

OFF = SchedulerLimits(keep_computed=False)


def shapes(events):
    return [
        [sequence.shape[:2] for sequence in event.sequences]
        for event in events
        if isinstance(event, StepCompleted)
    ]


def test_every_step_runs_the_whole_text_and_holds_nothing_afterwards():
    loop, _, events = make_loop(limits=OFF)
    loop.add(make_request("a", [1, 2, 3], 4))
    while loop.step():
        assert loop.scheduler.pool.num_used == 0
    assert outputs_of(events)["a"] == expected_output([1, 2, 3], 4)
    assert shapes(events) == [[(0, 3)], [(0, 4)], [(0, 5)], [(0, 6)]]
    used = [e.kv_blocks_used for e in events if isinstance(e, StepCompleted)]
    assert used == [1, 1, 2, 2]  # scratch memory, while the step runs


def test_a_text_longer_than_the_budget_runs_alone():
    limits = SchedulerLimits(keep_computed=False, max_step_tokens=4)
    loop, _, events = make_loop(limits=limits)
    loop.add(make_request("long", [1] * 6, 2))
    loop.add(make_request("a", [1, 2], 2))
    loop.add(make_request("b", [3], 2))
    run_to_end(loop)
    # Whole texts in order of rank, as many as fit; a text that does not fit lets nobody pass.
    assert shapes(events) == [[(0, 6)], [(0, 7)], [(0, 2), (0, 1)], [(0, 3)], [(0, 2)]]
    for name, prompt in (("long", [1] * 6), ("a", [1, 2]), ("b", [3])):
        assert outputs_of(events)[name] == expected_output(prompt, 2)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_brings_everybody_to_an_end_on_a_cache_that_is_too_small(policy):
    limits = SchedulerLimits(keep_computed=False, max_step_tokens=9)
    loop, _, events = make_loop(
        num_blocks=5, block_size=3, limits=limits, policy=POLICIES[policy]()
    )
    prompts = {f"r{i}": [i] * (1 + 2 * i) for i in range(5)}
    for i, (name, prompt) in enumerate(prompts.items()):
        loop.add(make_request(name, prompt, 5, session_id=str(i % 2), priority=-i))
    run_to_end(loop)
    for name, prompt in prompts.items():
        assert outputs_of(events)[name] == expected_output(prompt, 5), name
    assert all(prefix == 0 for step in shapes(events) for prefix, _ in step)
    assert all(e.lost_tokens == 0 for e in events if isinstance(e, RequestPreempted))


def test_nothing_is_shared_and_no_fork_waits():
    loop, _, events = make_loop(limits=OFF, prefix_cache=PrefixCache(), block_size=2)
    loop.add(make_request("a", [1, 2, 3, 4, 5], 3), sample_ids=["b"])
    run_to_end(loop)
    loop.add(make_request("c", [1, 2, 3, 4, 5], 3))
    run_to_end(loop)
    starts = [e for e in events if isinstance(e, RequestStarted)]
    assert [(e.cached_tokens, e.forked_tokens) for e in starts] == [(0, 0)] * 3
    assert shapes(events)[0] == [(0, 5), (0, 5)]
    assert loop.scheduler.pool.num_cached == 0


def test_drafts_are_refused():
    loop, _, events = make_loop(limits=OFF, drafters={SpeculationMethod.NGRAM: _Nobody()})
    settings = SpeculationSettings(SpeculationMethod.NGRAM)
    with pytest.raises(InvalidRequest) as caught:
        loop.add(make_request("a", [1], 2, speculation=settings))
    assert caught.value.field == "speculation"
    assert not events


class _Nobody:
    def check(self, settings):
        pass

    def propose(self, request):
        raise AssertionError("no drafts are verified without a cache")

    def release(self, request_id):
        pass


def test_the_switch_can_be_turned_while_requests_run():
    loop, _, events = make_loop(limits=SchedulerLimits(max_step_tokens=4))
    loop.add(make_request("a", [1, 2, 3, 4, 5, 6], 6))
    loop.step()
    loop.configure(limits=SchedulerLimits(max_step_tokens=4, keep_computed=False))
    for _ in range(3):
        loop.step()
    loop.configure(limits=SchedulerLimits())
    run_to_end(loop)
    assert outputs_of(events)["a"] == expected_output([1, 2, 3, 4, 5, 6], 6)
    # What was computed when it was switched off counts once more; then everything is recomputed.
    assert shapes(events) == [
        [(0, 4)], [(4, 2)], [(0, 7)], [(0, 8)], [(0, 9)], [(9, 1)], [(10, 1)],
    ]  # fmt: skip
