"""Drafts: a step verifies them, the text stays what it is, and nobody else pays for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.errors import InvalidRequest
from engine.scheduling.drafting import InStepDrafter
from engine.scheduling.events import (
    DraftsVerified,
    RequestFinished,
    RequestPreempted,
    StepCompleted,
    TokenProduced,
)
from engine.scheduling.latency import LatencyRecorder
from engine.scheduling.loop import SchedulingLoop
from engine.scheduling.plan import Phase, SequenceShape
from engine.scheduling.policies import FairBySession
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import FinishReason, Request
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.engine.scheduling.fakes import (
    VOCABULARY,
    expected_output,
    make_loop,
    make_request,
    outputs_of,
    run_to_end,
)

FOUR = SpeculationSettings(SpeculationMethod.NGRAM, draft_tokens=4)


class Oracle:
    """Drafts what the fake executor will say, but for the positions in ``wrong``."""

    def __init__(self, wrong: Sequence[int] = ()) -> None:
        self.wrong = wrong
        self.asked = 0

    def check(self, settings):
        pass

    def propose(self, request: Request) -> list[int]:
        self.asked += 1
        text = [*request.prompt_token_ids, *request.output_token_ids]
        right = expected_output(text, 9)
        return [
            (token + 1) % VOCABULARY if len(text) + offset in self.wrong else token
            for offset, token in enumerate(right)
        ][: request.speculation.draft_tokens if request.speculation else 0]

    def release(self, request_id: str) -> None:
        pass


def drafting_loop(wrong: Sequence[int] = (), **options):
    drafters = {SpeculationMethod.NGRAM: Oracle(wrong)}
    return make_loop(drafters=drafters, **options)


def verified(events) -> list[tuple[int, int]]:
    """Proposed and accepted drafts of each step that had some."""
    return [(len(e.proposed), e.num_accepted) for e in events if isinstance(e, DraftsVerified)]


def steps(events) -> list[StepCompleted]:
    return [event for event in events if isinstance(event, StepCompleted)]


def test_right_drafts_give_several_tokens_a_step():
    loop, _, events = drafting_loop()
    loop.add(make_request("a", [1, 2, 3], 11, speculation=FOUR))
    run_to_end(loop)
    assert outputs_of(events)["a"] == expected_output([1, 2, 3], 11)
    # The prefill gives one token without drafts, then each step four and one more.
    assert verified(events) == [(4, 4), (4, 4)]
    shapes = [step.sequences[0].shape for step in steps(events)]
    assert shapes == [(0, 3, True, 0), (3, 5, True, 4), (8, 5, True, 4)]
    assert [step.phase for step in steps(events)] == [Phase.PREFILL, Phase.DECODE, Phase.DECODE]
    assert [shape.sampled for shape in shapes] == [1, 5, 5]
    assert SequenceShape(3, 7, False).sampled == 0


def test_the_first_wrong_draft_ends_what_is_accepted():
    loop, _, events = drafting_loop(wrong=[6])
    loop.add(make_request("a", [1, 2, 3], 8, speculation=FOUR))
    run_to_end(loop)
    assert outputs_of(events)["a"] == expected_output([1, 2, 3], 8)
    # Positions 4, 5, 6, 7: the third is wrong, and what it should have been is sampled at once.
    assert verified(events)[0] == (4, 2)
    second = events.index(steps(events)[1])
    kinds = [type(event) for event in events[second : second + 5]]
    assert kinds == [StepCompleted, DraftsVerified, TokenProduced, TokenProduced, TokenProduced]


def test_there_are_never_more_tokens_than_asked_for_and_no_more_blocks_than_needed():
    loop, _, events = drafting_loop(num_blocks=2, block_size=4)
    loop.add(make_request("a", [1, 2, 3], 6, speculation=FOUR))  # 8 positions, the whole cache
    run_to_end(loop)
    assert outputs_of(events)["a"] == expected_output([1, 2, 3], 6)
    assert verified(events) == [(4, 4)]
    loop, _, events = drafting_loop(num_blocks=2, block_size=4)
    loop.add(make_request("b", [1, 2, 3], 5, speculation=FOUR))
    run_to_end(loop)
    assert len(outputs_of(events)["b"]) == 5
    assert verified(events) == [(3, 3)]


def test_a_stop_token_among_accepted_drafts_ends_the_text_there():
    expected = expected_output([5], 9)
    stop = expected[3]
    assert stop not in expected[:3]
    loop, executor, events = drafting_loop()
    loop.add(make_request("a", [5], 9, stop_token_ids=frozenset([stop]), speculation=FOUR))
    run_to_end(loop)
    assert outputs_of(events)["a"] == expected[:4]
    assert verified(events) == [(4, 4)]
    end = events[-1]
    assert isinstance(end, RequestFinished)
    assert (end.reason, end.completion_tokens) == (FinishReason.STOP, 4)
    assert executor.released == ["a"]
    assert loop.scheduler.pool.num_used == 0


def test_whoever_is_told_a_token_may_end_the_request_with_it():
    loop, _, events = drafting_loop()

    def hear(event):
        events.append(event)
        if isinstance(event, TokenProduced) and event.index == 2:
            assert loop.finish("a", FinishReason.STOP)

    loop.emit = hear
    loop.add(make_request("a", [5], 9, speculation=FOUR))
    run_to_end(loop)
    assert outputs_of(events)["a"] == expected_output([5], 3)
    ends = [event for event in events if isinstance(event, RequestFinished)]
    assert [(end.reason, end.completion_tokens) for end in ends] == [(FinishReason.STOP, 3)]


def test_minimum_and_ignored_stops():
    expected = expected_output([5], 9)
    stops = frozenset([expected[1], expected[4]])
    cases = [({}, 2), ({"min_tokens": 1}, 2), ({"min_tokens": 2}, 5), ({"ignore_eos": True}, 9)]
    for speculation in (None, FOUR):
        for options, length in cases:
            loop, _, events = drafting_loop()
            request = make_request("a", [5], 9, stop_token_ids=stops, **options)
            request.speculation = speculation
            loop.add(request)
            run_to_end(loop)
            assert outputs_of(events)["a"] == expected[:length], options
    with pytest.raises(InvalidRequest, match="min_tokens") as caught:
        loop.add(make_request("b", [5], 3, min_tokens=4))
    assert caught.value.field == "min_tokens"


def test_drafts_take_only_tokens_of_the_step_that_nobody_else_wants():
    loop, _, events = drafting_loop(limits=SchedulerLimits(max_step_tokens=4))
    loop.add(make_request("a", [1, 1], 9, speculation=FOUR))
    loop.step()
    loop.add(make_request("long", [2] * 7, 1))
    run_to_end(loop)
    tokens = [[(s.request_id, s.shape.new_tokens) for s in e.sequences] for e in steps(events)]
    # While the long prompt takes what is left, there are no drafts; the last chunk leaves none.
    assert tokens[1] == [("a", 1), ("long", 3)]
    assert tokens[2] == [("a", 1), ("long", 3)]
    assert tokens[3] == [("a", 3), ("long", 1)]
    assert tokens[4] == [("a", 3)]


def test_drafts_push_nobody_out_and_give_their_blocks_back():
    # Two requests fill the cache exactly; drafts of the first would need blocks of the second.
    loop, _, events = drafting_loop(wrong=range(100), num_blocks=4, block_size=4)
    loop.add(make_request("a", [1, 2, 3], 6, speculation=FOUR))
    loop.add(make_request("b", [3, 2, 1], 6))
    run_to_end(loop)
    assert not [event for event in events if isinstance(event, RequestPreempted)]
    for name, prompt in (("a", [1, 2, 3]), ("b", [3, 2, 1])):
        assert outputs_of(events)[name] == expected_output(prompt, 6)
    assert {accepted for _, accepted in verified(events)} == {0}


def test_rejected_drafts_are_not_in_the_prefix_cache():
    prompt = [1, 2, 3]
    cache = PrefixCache()
    loop, _, events = drafting_loop(wrong=[5], prefix_cache=cache, block_size=4)
    loop.add(make_request("a", prompt, 9, speculation=FOUR))
    run_to_end(loop)
    text = [*prompt, *expected_output(prompt, 9)]
    assert loop.scheduler.pool.num_cached == 2  # 11 computed positions
    # A text that goes on with the rejected drafts hits only what both have in common.
    drafted = [*text[:5], (text[5] + 1) % VOCABULARY, *text[6:]]
    found = cache.find(tuple(drafted[i : i + 4]) for i in range(0, 8, 4))
    assert len(found) == 1
    loop.add(make_request("again", text, 3, speculation=FOUR))
    run_to_end(loop)
    assert outputs_of(events)["again"] == expected_output(text, 3)


def test_accepted_drafts_are_charged_to_their_session_and_rejected_ones_are_not():
    for wrong, served in ((), 10), (range(100), 10):
        policy = FairBySession()
        loop, _, _ = drafting_loop(wrong=wrong, policy=policy)
        loop.add(make_request("a", [1, 2, 3], 8, session_id="s", speculation=FOUR))
        run_to_end(loop)
        assert policy._served == {"s": served}


def test_an_executor_may_draft_within_the_step_and_fewer_than_it_may():
    settings = SpeculationSettings(SpeculationMethod.EARLY_EXIT, draft_tokens=4)
    loop, executor, events = make_loop(drafters={SpeculationMethod.EARLY_EXIT: InStepDrafter()})
    executor.draft = lambda _, text, count: expected_output(list(text), min(count, 2))  # type: ignore[method-assign]
    loop.add(make_request("a", [1, 2], 7, speculation=settings))
    run_to_end(loop)
    assert outputs_of(events)["a"] == expected_output([1, 2], 7)
    assert verified(events) == [(2, 2), (2, 2)]
    assert [e.sequences[0].shape.new_tokens for e in steps(events)] == [2, 3, 3]


def test_a_way_of_drafting_that_nobody_knows_is_refused():
    loop, _, events = make_loop()
    with pytest.raises(InvalidRequest) as caught:
        loop.add(make_request("a", [1], 2, speculation=FOUR))
    assert caught.value.field == "speculation"
    assert not events


def test_only_requests_that_want_drafts_are_asked():
    loop, _, events = drafting_loop()
    oracle = loop.drafters[SpeculationMethod.NGRAM]
    assert isinstance(oracle, Oracle)
    loop.add(make_request("plain", [1], 6))
    loop.add(make_request("fast", [2], 6, speculation=FOUR))
    run_to_end(loop)
    assert oracle.asked == 1
    assert {e.request_id for e in events if isinstance(e, DraftsVerified)} == {"fast"}


@pytest.mark.parametrize(
    "wrong", [{"draft_tokens": 0}, {"draft_tokens": 17}, {"max_ngram": 9}, {"min_ngram": 5}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidRequest) as caught:
        SpeculationSettings(SpeculationMethod.NGRAM, **wrong)
    (name,) = wrong
    assert caught.value.field == f"speculation.{name}"
    assert caught.value.reason == "integer_range"


def test_tokens_of_one_step_come_at_one_time_and_their_gaps_are_zero():
    loop, _, events = drafting_loop()
    loop.add(make_request("a", [1, 2, 3], 7, speculation=FOUR))
    run_to_end(loop)
    recorder = LatencyRecorder()
    for event in events:
        recorder.record(event)
    latency = recorder.requests["a"]
    assert latency.ttft == 1.0
    assert latency.itl == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    assert latency.tpot == pytest.approx(2 / 6)


def test_a_loop_without_drafters_asks_nobody():
    loop, executor, _ = make_loop()
    assert isinstance(loop, SchedulingLoop)
    assert loop.drafters == {}
    loop.add(make_request("a", [1], 2))
    run_to_end(loop)
    assert executor.released == ["a"]
