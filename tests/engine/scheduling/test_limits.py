"""How much one session may take: places to run, places to wait, KV blocks."""

from __future__ import annotations

import pytest

from engine.errors import NeverFits, QueueFull
from engine.scheduling.events import RequestPreempted, RequestStarted, StepCompleted
from engine.scheduling.policies import POLICIES
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.scheduling.fakes import (
    expected_output,
    make_loop,
    make_request,
    outputs_of,
    run_to_end,
)


def add_six(loop, session):
    refused = 0
    for i in range(6):
        try:
            loop.add(make_request(f"{session}{i}", [i], 3, session_id=session))
        except QueueFull:
            refused += 1
    return refused


def test_a_sessions_queue_cap_refuses_exactly_its_rest_and_nobody_else():
    limits = SchedulerLimits(max_session_running=1, max_session_waiting=1)
    loop, _, events = make_loop(limits=limits)
    assert add_six(loop, "a") == 4
    assert add_six(loop, "b") == 4
    loop.step()
    assert add_six(loop, "c") == 4
    with pytest.raises(QueueFull):
        loop.add(make_request("again", [1], 2, session_id="a"))
    run_to_end(loop)
    assert len(outputs_of(events)) == 6


def test_a_full_house_counts_places_that_others_hold():
    limits = SchedulerLimits(max_running=2, max_session_waiting=1)
    loop, _, _ = make_loop(limits=limits)
    loop.add(make_request("x0", [1], 9, session_id="x"))
    loop.add(make_request("x1", [1], 9, session_id="x"))
    loop.step()
    assert add_six(loop, "a") == 5


def test_samples_count_as_requests_of_their_session():
    limits = SchedulerLimits(max_session_running=1, max_session_waiting=1)
    loop, _, events = make_loop(limits=limits)
    with pytest.raises(QueueFull):
        loop.add(make_request("a", [1], 2), sample_ids=["b", "c"])
    assert not events
    loop.add(make_request("a", [1], 2), sample_ids=["b"])
    run_to_end(loop)
    assert len(outputs_of(events)) == 2


@pytest.mark.parametrize("name", POLICIES)
def test_no_more_of_a_session_run_than_may_and_others_pass_by(name):
    limits = SchedulerLimits(max_session_running=2)
    loop, _, events = make_loop(limits=limits, policy=POLICIES[name]())
    for i in range(6):
        loop.add(make_request(f"a{i}", [1, i], 5, session_id="a"))
    loop.add(make_request("b0", [1], 12, session_id="b"))
    run_to_end(loop)
    for event in events:
        if isinstance(event, StepCompleted):
            ids = [sequence.request_id for sequence in event.sequences]
            assert sum(name.startswith("a") for name in ids) <= 2
    first = [e.request_id for e in events if isinstance(e, RequestStarted)][:3]
    assert set(first) == {"a0", "a1", "b0"}
    assert len(outputs_of(events)) == 7


@pytest.mark.parametrize("name", POLICIES)
def test_a_sessions_share_of_the_cache_is_kept_to_by_its_own_requests_alone(name):
    limits = SchedulerLimits(max_session_kv_blocks=6)
    loop, _, events = make_loop(num_blocks=40, block_size=2, limits=limits, policy=POLICIES[name]())
    loop.add(make_request("b0", [9, 9], 10, session_id="b"))
    for i in range(4):
        loop.add(make_request(f"a{i}", [1, i, 2], 8, session_id="a"))
    loop.add(make_request("c0", [8, 8], 10, session_id="c"))
    most = 0
    while loop.has_work:
        loop.step()
        loop.scheduler.check_integrity()
        own = [r for r in loop.scheduler.running if r.session_id == "a"]
        most = max(most, sum(len(request.block_table) for request in own))
    assert most == 6
    victims = {e.request_id for e in events if isinstance(e, RequestPreempted)}
    assert victims
    assert victims <= {"a1", "a2", "a3"}
    started = [e.request_id for e in events if isinstance(e, RequestStarted)]
    assert {"b0", "c0"} <= set(started[:5])
    outputs = outputs_of(events)
    for i in range(4):
        assert outputs[f"a{i}"] == expected_output([1, i, 2], 8)


def test_what_exceeds_a_sessions_share_is_refused_at_once():
    loop, _, events = make_loop(block_size=4, limits=SchedulerLimits(max_session_kv_blocks=3))
    with pytest.raises(NeverFits, match="a session may have 3") as caught:
        loop.add(make_request("a", [1] * 10, 4))  # 13 positions are stored
    assert caught.value.field == "max_tokens"
    loop.add(make_request("b", [1] * 10, 3))
    run_to_end(loop)
    assert outputs_of(events) == {"b": expected_output([1] * 10, 3)}
