"""The scheduler's rules, one small case each."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest, NeverFits, QueueFull, StepFailed
from engine.scheduling.events import (
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestStarted,
    StepCompleted,
    TokenProduced,
)
from engine.scheduling.latency import LatencyRecorder
from engine.scheduling.plan import Phase
from engine.scheduling.request import FinishReason
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.scheduling.fakes import (
    expected_output,
    make_loop,
    make_request,
    outputs_of,
    run_to_end,
)


def test_one_request_prefills_once_and_then_decodes():
    loop, executor, events = make_loop()
    loop.add(make_request("a", [1, 2, 3, 4, 5], 4))
    run_to_end(loop)
    steps = [event for event in events if isinstance(event, StepCompleted)]
    assert [step.phase for step in steps] == [Phase.PREFILL] + [Phase.DECODE] * 3
    assert [step.num_tokens for step in steps] == [5, 1, 1, 1]
    assert outputs_of(events)["a"] == expected_output([1, 2, 3, 4, 5], 4)
    assert executor.released == ["a"]
    assert loop.scheduler.pool.num_used == 0


def test_events_of_one_request_come_in_order():
    loop, _, events = make_loop()
    loop.add(make_request("a", [1, 2], 1))
    run_to_end(loop)
    kinds = [type(event) for event in events]
    assert kinds == [RequestQueued, RequestStarted, StepCompleted, TokenProduced, RequestFinished]


@pytest.mark.parametrize("max_tokens", [1, 5, 20])
def test_length_counts_every_token(max_tokens):
    loop, _, events = make_loop()
    loop.add(make_request("a", [1], max_tokens))
    run_to_end(loop)
    finished = events[-1]
    assert isinstance(finished, RequestFinished)
    assert (finished.completion_tokens, finished.reason) == (max_tokens, FinishReason.LENGTH)


def test_a_stop_token_ends_and_is_part_of_the_output():
    prompt = [3, 1, 4]
    expected = expected_output(prompt, 10)
    stop = expected[2]
    loop, _, events = make_loop()
    loop.add(make_request("a", prompt, 10, stop_token_ids=frozenset([stop])))
    run_to_end(loop)
    assert outputs_of(events)["a"] == expected[: expected.index(stop) + 1]
    finished = events[-1]
    assert isinstance(finished, RequestFinished)
    assert finished.reason is FinishReason.STOP


def test_requests_share_steps_and_give_what_each_gives_alone():
    loop, _, events = make_loop()
    prompts = {f"r{i}": [i, i + 1, i * 7 % 13] for i in range(8)}
    for name, prompt in prompts.items():
        loop.add(make_request(name, prompt, 6))
        loop.step()
    run_to_end(loop)
    outputs = outputs_of(events)
    assert outputs == {name: expected_output(p, 6) for name, p in prompts.items()}
    assert max(e.batch for e in events if isinstance(e, StepCompleted)) > 1


def test_a_long_prompt_is_chunked_by_the_token_budget_while_others_decode():
    loop, _, events = make_loop(limits=SchedulerLimits(max_step_tokens=8))
    loop.add(make_request("short", [5], 12))
    loop.step()
    prompt = list(range(30))
    loop.add(make_request("long", prompt, 3))
    run_to_end(loop)
    steps = [event for event in events if isinstance(event, StepCompleted)]
    assert all(step.num_tokens <= 8 for step in steps)
    assert any(step.phase is Phase.MIXED for step in steps)
    assert outputs_of(events)["long"] == expected_output(prompt, 3)


def test_youngest_is_preempted_and_finishes_with_the_same_tokens():
    loop, _, events = make_loop(num_blocks=6, block_size=2)
    loop.add(make_request("old", [1, 2, 3], 8))
    loop.add(make_request("young", [4, 5, 6], 8))
    run_to_end(loop)
    preempted = [event for event in events if isinstance(event, RequestPreempted)]
    assert preempted
    assert {event.request_id for event in preempted} == {"young"}
    outputs = outputs_of(events)
    assert outputs["old"] == expected_output([1, 2, 3], 8)
    assert outputs["young"] == expected_output([4, 5, 6], 8)


def test_what_can_never_fit_is_refused_at_once_and_disturbs_nobody():
    loop, _, events = make_loop(
        num_blocks=16, block_size=4, limits=SchedulerLimits(max_context=256)
    )
    with pytest.raises(NeverFits):
        loop.add(make_request("big", list(range(100)), 10))
    with pytest.raises(NeverFits):
        loop.add(make_request("far", [1], 10_000))
    loop.add(make_request("small", [1, 2], 3))
    run_to_end(loop)
    assert outputs_of(events) == {"small": expected_output([1, 2], 3)}


def test_a_request_that_fills_the_whole_cache_exactly_is_taken():
    loop, _, events = make_loop(num_blocks=4, block_size=4)
    loop.add(make_request("a", list(range(10)), 7))  # the 17th token is never stored
    run_to_end(loop)
    assert len(outputs_of(events)["a"]) == 7


def test_empty_prompt_zero_tokens_and_a_used_id_are_refused():
    loop, _, _ = make_loop()
    for request, field in [
        (make_request("a", [], 3), "prompt"),
        (make_request("a", [1], 0), "max_tokens"),
    ]:
        with pytest.raises(InvalidRequest) as caught:
            loop.add(request)
        assert caught.value.field == field
    loop.add(make_request("a", [1], 1))
    with pytest.raises(InvalidRequest):
        loop.add(make_request("a", [1], 1))


def test_queue_cap_refuses_exactly_the_rest():
    loop, _, events = make_loop(limits=SchedulerLimits(max_running=1, max_waiting=1))
    refused = 0
    for i in range(6):
        try:
            loop.add(make_request(f"r{i}", [i], 2))
        except QueueFull:
            refused += 1
    assert refused == 4
    run_to_end(loop)
    assert len(outputs_of(events)) == 2


def test_abort_frees_blocks_at_once_wherever_the_request_is():
    loop, executor, events = make_loop(limits=SchedulerLimits(max_running=1))
    loop.add(make_request("running", [1, 2, 3], 50))
    loop.add(make_request("waiting", [1, 2, 3], 50))
    loop.step()
    assert loop.abort("waiting")
    assert loop.abort("running")
    assert not loop.abort("running")
    assert not loop.has_work
    assert loop.scheduler.pool.num_used == 0
    assert executor.released == ["waiting", "running"]
    assert [e.reason for e in events if isinstance(e, RequestFinished)] == [FinishReason.ABORT] * 2


def test_a_failing_step_ends_its_requests_with_an_error_and_the_rest_go_on():
    loop, executor, events = make_loop(limits=SchedulerLimits(max_running=1))
    loop.add(make_request("a", [1], 9))
    loop.add(make_request("b", [2], 3))
    executor.fail_at = 3
    loop.step()
    loop.step()
    with pytest.raises(StepFailed):
        loop.step()
    run_to_end(loop)
    reasons = {e.request_id: e.reason for e in events if isinstance(e, RequestFinished)}
    assert reasons == {"a": FinishReason.ERROR, "b": FinishReason.LENGTH}
    assert loop.scheduler.pool.num_used == 0


def test_every_way_to_end_leaves_the_pool_full():
    loop, executor, _ = make_loop(num_blocks=32)
    for i in range(200):
        loop.add(
            make_request(f"r{i}", [i % 5, 1, 2], 1 + i % 7, stop_token_ids=frozenset([i % 97]))
        )
        loop.step()
        if i % 4 == 1:
            loop.abort(f"r{i}")
        if i % 4 == 2:
            loop.finish(f"r{i}", FinishReason.STOP)
        loop.scheduler.check_integrity()
    run_to_end(loop)
    assert loop.scheduler.pool.num_free == 32
    assert sorted(executor.released) == sorted(f"r{i}" for i in range(200))


def test_latency_is_read_from_events_alone():
    loop, _, events = make_loop(limits=SchedulerLimits(max_running=1))
    loop.add(make_request("a", [1, 2], 3))
    loop.add(make_request("b", [1, 2], 2))
    run_to_end(loop)
    recorder = LatencyRecorder()
    for event in events:
        recorder.record(event)
    a, b = recorder.requests["a"], recorder.requests["b"]
    assert (a.ttft, a.itl, a.tpot, a.end_to_end) == (1.0, [1.0, 1.0], 1.0, 3.0)
    assert (b.ttft, b.itl) == (4.0, [1.0])
    assert recorder.mean_ttft() == 2.5
    assert recorder.mean_itl() == 1.0
