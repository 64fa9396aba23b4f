"""Forks: samples of one text that compute it once, and never write into each other's blocks."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest, QueueFull
from engine.scheduling.events import (
    RequestFinished,
    RequestQueued,
    RequestStarted,
    StepCompleted,
    TokenProduced,
)
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.scheduling.fakes import (
    PersonalExecutor,
    expected_output,
    make_loop,
    make_request,
    outputs_of,
    personal_output,
    run_to_end,
)


def personal_loop():
    loop, _, events = make_loop(block_size=4)
    loop.executor = PersonalExecutor(4)
    return loop, events


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9, 11])
def test_samples_compute_the_prompt_once_and_then_go_their_own_ways(length):
    loop, events = personal_loop()
    prompt = list(range(length))
    names = ["a", "b", "c", "d"]
    loop.add(make_request("a", prompt, 9), sample_ids=names[1:])
    run_to_end(loop)
    outputs = outputs_of(events)
    assert outputs == {name: personal_output(name, prompt, 9) for name in names}
    assert len({tuple(output) for output in outputs.values()}) == 4
    prefills = sum(
        s.shape.new_tokens
        for e in events
        if isinstance(e, StepCompleted)
        for s in e.sequences
        if s.shape.prefix_tokens < length
    )
    assert prefills == length + 3  # the last prompt token again for each fork
    forked = {e.request_id: e.forked_tokens for e in events if isinstance(e, RequestStarted)}
    assert forked == {"a": 0} | dict.fromkeys("bcd", length - 1)
    assert loop.scheduler.pool.num_free == 64


@pytest.mark.parametrize(("length", "shared", "copies"), [(9, 2, 0), (11, 2, 3), (12, 2, 3)])
def test_full_blocks_are_shared_and_the_last_is_copied(length, shared, copies):
    loop, _, _ = make_loop(block_size=4)
    loop.add(make_request("a", list(range(length)), 2), sample_ids=["b", "c", "d"])
    loop.step()
    planned = loop.scheduler.plan()
    assert planned.plan is not None
    tables = {s.request_id: list(s.block_table) for s in planned.plan.sequences}
    assert all(table[:shared] == tables["a"][:shared] for table in tables.values())
    assert len({table[shared] for table in tables.values()}) == 4
    sources = {source for source, _ in planned.plan.copies}
    targets = {target for _, target in planned.plan.copies}
    assert len(planned.plan.copies) == copies
    assert not sources & targets
    if copies:
        assert sources == {tables["a"][shared]}
        assert targets == {tables[name][shared] for name in "bcd"}
    loop.scheduler.check_integrity()


def test_copies_are_told_once():
    loop, _, events = make_loop(block_size=4)
    loop.add(make_request("a", list(range(6)), 4), sample_ids=["b"])
    run_to_end(loop)
    steps = [event for event in events if isinstance(event, StepCompleted)]
    assert [step.kv_blocks_copied for step in steps] == [0, 1, 0, 0, 0]
    assert [step.kv_blocks_used for step in steps] == [2, 3, 3, 4, 3]


def test_a_fork_in_the_middle_of_an_answer_keeps_what_was_said():
    loop, events = personal_loop()
    prompt = [5, 3, 1]
    loop.add(make_request("a", prompt, 12))
    for _ in range(6):
        loop.step()
    loop.fork("a", "b")
    run_to_end(loop)
    said = personal_output("a", prompt, 12)
    assert outputs_of([e for e in events if getattr(e, "request_id", "") == "a"])["a"] == said
    own = [e for e in events if isinstance(e, TokenProduced) and e.request_id == "b"]
    assert [event.index for event in own] == list(range(6, 12))
    started = [e for e in events if isinstance(e, RequestStarted)]
    assert [event.forked_tokens for event in started] == [0, 8]
    # What it says is what it would say if it were given that much of the answer as its prompt.
    assert [e.token_id for e in own] == personal_output("b", [*prompt, *said[:6]], 6)
    ends = {e.request_id: e.completion_tokens for e in events if isinstance(e, RequestFinished)}
    assert ends == {"a": 12, "b": 12}
    queued = [(e.request_id, e.forked_from) for e in events if isinstance(e, RequestQueued)]
    assert queued == [("a", None), ("b", "a")]


def test_a_fork_of_a_fork_that_starts_in_the_same_step_has_one_source():
    loop, events = personal_loop()
    loop.add(make_request("a", [1, 2, 3, 4, 5, 6], 6))
    loop.fork("a", "b")
    loop.fork("b", "c")
    run_to_end(loop)
    assert outputs_of(events) == {n: personal_output(n, [1, 2, 3, 4, 5, 6], 6) for n in "abc"}
    copied = [e.kv_blocks_copied for e in events if isinstance(e, StepCompleted)]
    assert copied[:2] == [0, 2]


@pytest.mark.parametrize("end", ["abort", "length", "preempt"])
def test_a_fork_goes_on_alone_when_its_source_has_no_blocks(end):
    loop, events = personal_loop()
    prompt = list(range(10))
    loop.add(make_request("a", prompt, 1 if end == "length" else 7))
    if end == "preempt":
        loop.step()
    loop.fork("a", "b")
    if end == "preempt":
        assert loop.preempt("a")
    if end == "abort":
        assert loop.abort("a")
    run_to_end(loop)
    ends = {e.request_id for e in events if isinstance(e, RequestFinished)}
    assert ends == {"a", "b"}
    own = [e.token_id for e in events if isinstance(e, TokenProduced) and e.request_id == "b"]
    said = personal_output("a", prompt, 7)[:1] if end == "preempt" else []
    length = 1 if end == "length" else 7
    assert own == personal_output("b", [*prompt, *said], length - len(said))
    assert loop.scheduler.pool.num_free == 64


def test_a_fork_outlives_its_source():
    loop, events = personal_loop()
    prompt = list(range(10))
    loop.add(make_request("a", prompt, 20), sample_ids=["b"])
    for _ in range(3):
        loop.step()
    loop.abort("a")
    loop.scheduler.check_integrity()
    run_to_end(loop)
    assert outputs_of(events)["b"] == personal_output("b", prompt, 20)


def test_forks_wait_while_the_prompt_is_computed_and_others_pass_by():
    loop, _, events = make_loop(limits=SchedulerLimits(max_step_tokens=8))
    loop.add(make_request("a", list(range(30)), 3), sample_ids=["b"])
    loop.add(make_request("other", [1], 2))
    run_to_end(loop)
    order = [e.request_id for e in events if isinstance(e, RequestStarted)]
    assert order == ["a", "other", "b"]
    assert outputs_of(events)["b"] == expected_output(list(range(30)), 3)


def test_all_samples_are_taken_or_none():
    loop, _, events = make_loop(limits=SchedulerLimits(max_running=2, max_waiting=1))
    with pytest.raises(QueueFull):
        loop.add(make_request("a", [1, 2], 3), sample_ids=["b", "c", "d"])
    for taken in (["a"], ["b", "b"]):
        with pytest.raises(InvalidRequest):
            loop.add(make_request("a", [1, 2], 3), sample_ids=taken)
    assert not events
    assert not loop.has_work
    loop.add(make_request("a", [1, 2], 3), sample_ids=["b", "c"])
    with pytest.raises(QueueFull):
        loop.fork("a", "d")
    run_to_end(loop)
    assert len(outputs_of(events)) == 3


def test_what_can_not_be_forked_is_refused():
    loop, _, _ = make_loop()
    with pytest.raises(InvalidRequest):
        loop.fork("nobody", "b")
    loop.add(make_request("a", [1], 2))
    with pytest.raises(InvalidRequest):
        loop.fork("a", "a")


def test_a_fork_has_the_settings_of_its_source():
    loop, _, _ = make_loop()
    source = make_request("a", [1], 2, stop_token_ids=frozenset([4]), session_id="s", priority=3)
    loop.add(source)
    fork, _ = loop.scheduler.fork("a", "b")
    for name in ("prompt_token_ids", "max_tokens", "stop_token_ids", "session_id", "priority"):
        assert getattr(fork, name) == getattr(source, name)
    assert fork.output_token_ids is not source.output_token_ids
