"""Who goes first: each policy's order, its victims, and fairness by session."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from engine.scheduling.events import (
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestStarted,
    StepCompleted,
    TokenProduced,
)
from engine.scheduling.latency import LatencyRecorder
from engine.scheduling.policies import (
    POLICIES,
    ByPriority,
    FairBySession,
    FirstCome,
    ShortestFirst,
    allot,
)
from engine.scheduling.request import RequestState
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from tests.engine.scheduling.fakes import (
    expected_output,
    make_loop,
    make_request,
    outputs_of,
    run_to_end,
)

ONE = SchedulerLimits(max_running=1)


def names(events, kind):
    return [event.request_id for event in events if isinstance(event, kind)]


def test_first_come_is_the_default():
    loop, _, _ = make_loop()
    assert isinstance(loop.scheduler.policy, FirstCome)
    assert set(POLICIES) == {"first-come", "priority", "shortest-first", "fair"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (FirstCome(), ["first", "long", "short", "urgent", "late"]),
        (ByPriority(), ["first", "urgent", "long", "short", "late"]),
        (ShortestFirst(), ["first", "short", "late", "urgent", "long"]),
    ],
)
def test_the_queue_is_in_the_policys_order(policy, expected):
    loop, _, events = make_loop(limits=ONE, policy=policy)
    loop.add(make_request("first", [1], 2))
    loop.step()
    loop.add(make_request("long", [1] * 20, 9))
    loop.add(make_request("short", [1] * 3, 2))
    loop.add(make_request("urgent", [1] * 5, 5, priority=-1))
    loop.add(make_request("late", [1] * 2, 3))
    run_to_end(loop)
    assert names(events, RequestStarted) == expected
    assert names(events, RequestFinished) == expected


def test_the_place_in_the_queue_is_the_policys():
    loop, _, events = make_loop(limits=ONE, policy=ByPriority())
    for name, priority in [("a", 5), ("b", 1), ("c", 9), ("d", 1)]:
        loop.add(make_request(name, [1], 2, priority=priority))
    assert [e.position for e in events if isinstance(e, RequestQueued)] == [1, 1, 3, 2]


def test_shortest_first_looks_at_the_answer_too():
    loop, _, events = make_loop(limits=ONE, policy=ShortestFirst())
    loop.add(make_request("much to say", [1], 30))
    loop.add(make_request("much to read", [1] * 20, 2))
    run_to_end(loop)
    assert names(events, RequestStarted) == ["much to read", "much to say"]


def test_shortest_first_waits_least():
    means = {}
    for name in ("first-come", "shortest-first"):
        loop, _, events = make_loop(limits=ONE, policy=POLICIES[name]())
        rng = random.Random(3)
        for i in range(30):
            loop.add(make_request(f"r{i}", [1] * rng.randrange(1, 9), rng.randrange(1, 30)))
        run_to_end(loop)
        recorder = LatencyRecorder()
        for event in events:
            recorder.record(event)
        means[name] = recorder.mean_ttft()
    assert means["shortest-first"] < 0.75 * means["first-come"]


@pytest.mark.parametrize(
    ("policy", "victim"), [(FirstCome(), "b"), (ByPriority(), "a"), (FairBySession(), "b")]
)
def test_who_ranks_last_gives_its_blocks_up(policy, victim):
    loop, _, events = make_loop(num_blocks=6, block_size=2, policy=policy)
    loop.add(make_request("a", [1, 2, 3], 8, priority=7))
    loop.add(make_request("b", [4, 5, 6], 8, priority=1))
    run_to_end(loop)
    assert set(names(events, RequestPreempted)) == {victim}
    outputs = outputs_of(events)
    assert outputs["a"] == expected_output([1, 2, 3], 8)
    assert outputs["b"] == expected_output([4, 5, 6], 8)


# ── fair by session ──────────────────────────────────────────────────────────────────────────


def served_by_session(events, sessions):
    served = Counter()
    for event in events:
        if isinstance(event, StepCompleted):
            for sequence in event.sequences:
                served[sessions[sequence.request_id]] += sequence.shape.new_tokens
    return served


def staggered_sessions(policy, limits, steps=900, join_every=12, users=6):
    """Greedy session 0 keeps twelve requests open, the others two each and come one by one.

    After all have come, the tokens of each session since then, seen after every further step.
    """
    loop, _, events = make_loop(num_blocks=512, block_size=4, limits=limits, policy=policy)
    sessions, rng = {}, random.Random(4)
    live = Counter()
    told = 0
    tokens = Counter()
    seen = []
    for step in range(steps):
        for event in events[told:]:
            if isinstance(event, RequestFinished):
                live[sessions[event.request_id]] -= 1
            elif isinstance(event, TokenProduced) and step > join_every * users:
                tokens[sessions[event.request_id]] += 1
        told = len(events)
        for user in range(users):
            if step < user * join_every:
                continue
            while live[user] < (12 if user == 0 else 2):
                name = f"u{user}-{len(sessions)}"
                sessions[name] = user
                live[user] += 1
                prompt = [rng.randrange(97) for _ in range(4)]
                loop.add(make_request(name, prompt, 10, session_id=str(user)))
        loop.step()
        seen.append([tokens[user] for user in range(users)])
    return seen


@pytest.mark.parametrize(
    "limits",
    [
        SchedulerLimits(max_running=6),
        SchedulerLimits(max_running=24, max_step_tokens=4),
        SchedulerLimits(max_running=3, max_step_tokens=32),
    ],
)
def test_sessions_get_fair_shares_at_any_time_after_warm_up(limits):
    """Measured since all are there; warm-up is over when each has got the tokens of 5 answers."""
    seen = staggered_sessions(FairBySession(), limits)
    warm = [tokens for tokens in seen if min(tokens) >= 50]
    assert len(warm) > 300
    assert max(max(tokens) / min(tokens) for tokens in warm) <= 2
    unfair = staggered_sessions(FirstCome(), limits)[-1]
    assert max(unfair) > 2 * min(unfair)


def test_a_session_that_comes_late_earns_no_credit():
    """It starts level, rather than having everything until it has caught up with the past."""
    limits = SchedulerLimits(max_running=2, max_step_tokens=2)
    loop, _, events = make_loop(num_blocks=512, limits=limits, policy=FairBySession())
    for i in range(40):
        loop.add(make_request(f"old{i}", [1], 10, session_id="old"))
    for _ in range(60):
        loop.step()
    events.clear()
    for i in range(20):
        loop.add(make_request(f"new{i}", [2], 10, session_id="new"))
    for _ in range(100):
        loop.step()
    served = Counter(e.request_id[:3] for e in events if isinstance(e, TokenProduced))
    assert served["old"] > 70
    assert served["new"] > 70


def test_a_session_that_goes_away_for_a_moment_keeps_its_debt():
    policy = FairBySession()
    loop, _, events = make_loop(num_blocks=512, limits=ONE, policy=policy)
    loop.add(make_request("a0", [1] * 9, 20, session_id="a"))
    loop.add(make_request("b0", [1], 3, session_id="b"))
    while loop.scheduler.get("a0"):
        loop.step()
    loop.add(make_request("a1", [1], 3, session_id="a"))
    loop.add(make_request("b1", [1], 3, session_id="b"))
    run_to_end(loop)
    assert names(events, RequestStarted) == ["a0", "b0", "b1", "a1"]


@pytest.mark.parametrize("others", [0, 1])
def test_accounts_do_not_pile_up(others):
    policy = FairBySession()
    limits = SchedulerLimits(max_running=2, max_context=2000)
    loop, _, _ = make_loop(num_blocks=512, limits=limits, policy=policy)
    if others:
        loop.add(make_request("always here", [1], 1000, session_id="always here"))
    for i in range(300):
        loop.add(make_request(f"r{i}", [1], 2, session_id=f"s{i}"))
        for _ in range(3):
            loop.step()
    assert len(policy._served) < 10


def test_turns_change_within_a_step():
    policy = FairBySession()
    requests = [make_request(f"m{i}", [1], 2, session_id="many") for i in range(3)]
    requests.append(make_request("s0", [1], 2, session_id="single"))
    for number, request in enumerate(requests):
        request.arrival = number
        request.state = RequestState.RUNNING
        policy.joined(request, requests[:number])
    assert allot(requests, SchedulerLimits(max_step_tokens=2), policy) == {
        "m0": 1,
        "m1": 0,
        "m2": 0,
        "s0": 1,
    }
    assert policy._served == {"many": 1, "single": 1}


def test_recomputing_is_not_charged_twice_and_cached_tokens_not_at_all():
    policy = FairBySession()
    loop, _, events = make_loop(policy=policy)
    loop.add(make_request("a", list(range(10)), 8, session_id="s"))
    for _ in range(4):
        loop.step()
    assert policy._served == {"s": 13}
    loop.preempt("a")
    loop.step()
    assert policy._served == {"s": 14}
    assert served_by_session(events, {"a": "s"}) == {"s": 13 + 14}


def test_a_small_budget_goes_to_whoever_had_least():
    """Ten requests of one session and one of another, two tokens a step: nobody is left out."""
    limits = SchedulerLimits(max_running=16, max_step_tokens=2)
    loop, _, events = make_loop(num_blocks=512, limits=limits, policy=FairBySession())
    for i in range(10):
        loop.add(make_request(f"many{i}", [1], 30, session_id="many"))
    for _ in range(12):
        loop.step()
    loop.add(make_request("single", [1], 30, session_id="single"))
    for _ in range(33):
        loop.step()
        loop.scheduler.check_integrity()
    assert len(outputs_of(events)["single"]) >= 29


@pytest.mark.parametrize("somebody_waits", [False, True])
def test_a_step_is_never_empty_because_the_one_whose_turn_it_was_had_to_yield(somebody_waits):
    limits = SchedulerLimits(max_step_tokens=1)
    policy = FairBySession()
    loop, _, events = make_loop(num_blocks=3, block_size=2, limits=limits, policy=policy)
    loop.add(make_request("a", [1, 2, 3], 3, session_id="a"))
    loop.add(make_request("b", [4], 4, session_id="b"))
    a, b = loop.scheduler.get("a"), loop.scheduler.get("b")
    assert a is not None
    assert b is not None
    while (a.num_computed_tokens, b.num_computed_tokens) != (3, 2):
        assert loop.step()
    if somebody_waits:
        loop.add(make_request("c", [5], 1, session_id="c"))
    policy._served = {"a": 9, "b": 1, "c": 0}  # so that all goes to b, which has no block for it
    assert loop.step()
    assert a.num_computed_tokens == (3 if somebody_waits else 4)
    assert names(events, RequestPreempted) == ["b"]
    run_to_end(loop)
    assert outputs_of(events)["b"] == expected_output([4], 4)


def test_an_unknown_order_is_noticed():
    loop, _, _ = make_loop(policy=ByPriority())
    scheduler: Scheduler = loop.scheduler
    for name, priority in [("a", 1), ("b", 2)]:
        loop.add(make_request(name, [1], 2, priority=priority))
    scheduler.waiting.reverse()
    with pytest.raises(AssertionError, match="rank"):
        scheduler.check_integrity()
