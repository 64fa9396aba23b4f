"""Limits, policy and the size of the cache change while requests run, and none is lost."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest
from engine.scheduling.blocks import BlockPool
from engine.scheduling.events import Configured, RequestPreempted, RequestStarted, StepCompleted
from engine.scheduling.policies import POLICIES, FairBySession, ShortestFirst
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.scheduling.fakes import (
    expected_output,
    make_loop,
    make_request,
    outputs_of,
    run_to_end,
)


def started(events) -> list[str]:
    return [event.request_id for event in events if isinstance(event, RequestStarted)]


def check_outputs(events, tokens: int, prompts: dict[str, list[int]]) -> None:
    outputs = outputs_of(events)
    for name, prompt in prompts.items():
        assert outputs[name] == expected_output(prompt, tokens), name


def test_fewer_places_hold_back_the_next_ones_and_end_nobody():
    loop, _, events = make_loop()
    prompts = {f"r{i}": [i] for i in range(6)}
    for name, prompt in prompts.items():
        loop.add(make_request(name, prompt, 5))
    loop.configure(limits=SchedulerLimits(max_running=4))
    loop.step()
    assert len(loop.scheduler.running) == 4
    loop.configure(limits=SchedulerLimits(max_running=1))
    assert len(loop.scheduler.running) == 4
    loop.step()
    assert len(loop.scheduler.running) == 4
    assert started(events) == ["r0", "r1", "r2", "r3"]
    run_to_end(loop)
    check_outputs(events, 5, prompts)
    told = [event for event in events if isinstance(event, Configured)]
    assert [event.limits.max_running for event in told] == [4, 1]
    assert told[0].policy == "first-come"
    assert told[0].usable_blocks == 64


def test_a_smaller_budget_counts_from_the_next_step():
    loop, _, events = make_loop()
    loop.add(make_request("a", list(range(10)), 2))
    loop.configure(limits=SchedulerLimits(max_step_tokens=3))
    run_to_end(loop)
    tokens = [event.num_tokens for event in events if isinstance(event, StepCompleted)]
    assert tokens == [3, 3, 3, 1, 1]


def test_a_new_policy_orders_those_that_are_here():
    loop, _, events = make_loop(limits=SchedulerLimits(max_running=1))
    for name, length in (("long", 9), ("longer", 11), ("short", 2)):
        loop.add(make_request(name, [1] * length, 2))
    loop.configure(policy=ShortestFirst())
    run_to_end(loop)
    assert started(events) == ["short", "long", "longer"]
    assert {name: policy().name for name, policy in POLICIES.items()} == {n: n for n in POLICIES}


def test_a_new_account_begins_level():
    loop, _, events = make_loop(limits=SchedulerLimits(max_running=2))
    prompts = {"a0": [1] * 20, "a1": [2], "a2": [3], "b0": [4]}
    for name, prompt in prompts.items():
        loop.add(make_request(name, prompt, 3, session_id=name[0]))
    loop.step()
    policy = FairBySession()
    loop.configure(policy=policy)
    assert policy._served == {"a": 0, "b": 0}
    loop.step()
    loop.scheduler.check_integrity()
    run_to_end(loop)
    check_outputs(events, 3, prompts)
    # Two of the first session ran already; then it was the other's turn.
    assert started(events) == ["a0", "a1", "b0", "a2"]


def test_a_smaller_cache_takes_blocks_from_nobody_and_grows_again():
    loop, _, events = make_loop(num_blocks=12, block_size=2)
    prompts = {f"r{i}": [i, i, i] for i in range(3)}
    for name, prompt in prompts.items():
        loop.add(make_request(name, prompt, 6))
    loop.step()
    assert loop.scheduler.pool.num_used == 6
    loop.configure(usable_blocks=5)
    assert loop.scheduler.pool.num_used == 6
    assert loop.scheduler.pool.num_available == 0
    loop.step()  # all still fit into their last blocks
    assert not [event for event in events if isinstance(event, RequestPreempted)]
    loop.step()
    assert loop.scheduler.pool.num_used <= 5
    assert [e.request_id for e in events if isinstance(e, RequestPreempted)] == ["r2", "r1"]
    loop.configure(usable_blocks=12)
    run_to_end(loop)
    check_outputs(events, 6, prompts)
    totals = [e.kv_blocks_total for e in events if isinstance(e, StepCompleted)]
    assert totals[:4] == [12, 5, 5, 12]


def test_limits_under_which_somebody_could_never_finish_are_refused():
    loop, _, events = make_loop(num_blocks=12, block_size=2)
    loop.add(make_request("a", [1, 2], 8))  # 9 positions, 5 blocks
    before = list(events)
    too_few = [
        ({"usable_blocks": 4}, "usable_blocks"),
        ({"usable_blocks": 0}, "usable_blocks"),
        ({"usable_blocks": 13}, "usable_blocks"),
        ({"limits": SchedulerLimits(max_session_kv_blocks=4)}, "max_session_kv_blocks"),
    ]
    for change, field in too_few:
        with pytest.raises(InvalidRequest) as caught:
            loop.configure(**change)
        assert caught.value.field == field
    assert events == before
    assert loop.scheduler.limits == SchedulerLimits()
    loop.configure(usable_blocks=5, limits=SchedulerLimits(max_session_kv_blocks=5))
    run_to_end(loop)
    check_outputs(events, 8, {"a": [1, 2]})


@pytest.mark.parametrize("field", ["max_running", "max_step_tokens", "max_session_running"])
def test_limits_with_which_nothing_runs_are_refused(field):
    with pytest.raises(InvalidRequest) as caught:
        SchedulerLimits(**{field: 0})  # type: ignore[arg-type]
    assert caught.value.field == field


def test_a_smaller_pool_forgets_what_was_used_longest_ago():
    cache = PrefixCache()
    pool = BlockPool(4, 1, prefix_cache=cache)
    loop, _, _ = make_loop(num_blocks=4, block_size=1, prefix_cache=cache)
    loop.scheduler.pool = pool
    loop.add(make_request("a", [1, 2, 3], 1))
    run_to_end(loop)
    assert (pool.num_cached, pool.num_free) == (3, 1)
    pool.limit(2)
    assert (pool.num_cached, pool.num_free, pool.num_available) == (2, 2, 2)
    assert len(cache.find([(1,), (2,), (3,)])) == 2
    taken = pool.allocate(2)
    assert pool.num_cached == 0
    assert len(cache) == 0
    assert pool.num_available == 0
    pool.limit(4)
    assert pool.num_available == 2
    pool.release(taken)
    pool.check_integrity([])
    with pytest.raises(ValueError, match="limit"):
        pool.limit(5)
