"""The engine as one object: samples, drafts, prefixes and ends of requests."""

from __future__ import annotations

import pytest

from engine.inference import messages as m
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from tests.engine.inference.engine_for_tests import Bench, ask

pytestmark = pytest.mark.usefixtures("one_thread")


def test_drafts_beyond_the_end_of_the_text_do_not_count(bench: Bench) -> None:
    settings = SpeculationSettings(SpeculationMethod.NGRAM, 8)
    prompt = "one two three four one two three four one two three four"
    bench.run(ask("plain", prompt=prompt, max_tokens=60))
    for end in range(1, 60):
        name = f"end-{end}"
        stop = (bench.ids("plain")[end],)
        bench.run(
            ask(name, prompt=prompt, max_tokens=60, stop_token_ids=stop, speculation=settings)
        )
        (done,) = bench.of(m.Done, name)
        steps = len(bench.of(m.Step, name))
        # Each step gives one token of its own, but for the last if the text ends at a draft.
        own_of_last = steps + done.accepted_tokens - done.completion_tokens
        assert own_of_last in (0, 1)
        told = sum(d.num_accepted for d in bench.of(m.Drafted, name))
        assert told >= done.accepted_tokens


def test_samples_are_what_requests_of_their_own_would_be(bench: Bench) -> None:
    bench.run(ask(n=3, temperature=1.0, seed=5))
    together = [bench.ids(sample=i) for i in range(3)]
    bench.run(*(ask(f"alone{i}", temperature=1.0, seed=5 + i) for i in range(3)))
    assert together == [bench.ids(f"alone{i}") for i in range(3)]
    dones = bench.of(m.Done)
    assert sorted(done.sample for done in dones) == [0, 1, 2]
    assert [done.samples_left for done in dones] == [2, 1, 0]
    assert len(bench.of(m.Accepted)) == 1
    forked = {s.sample: s.forked_tokens for s in bench.of(m.Started)}
    assert forked[0] == 0
    assert min(forked[1], forked[2]) > 0


def test_aborting_ends_all_samples(bench: Bench) -> None:
    bench.take(ask(n=3, max_tokens=50))
    for _ in range(4):
        bench.engine.step()
    bench.engine.abort("a")
    assert [done.finish_reason for done in bench.of(m.Done)] == ["abort"] * 3
    assert not bench.engine.has_work


def test_a_prefix_is_found_again_and_changes_nothing(bench: Bench) -> None:
    prompt = "many words that come again and again, " * 3
    plain = ask("plain", prompt=prompt)
    bench.run(plain)
    bench.run(ask("first", prompt=prompt, prefix_cache=True))
    bench.run(ask("second", prompt=prompt, prefix_cache=True))
    assert bench.of(m.Started, "first")[0].cached_tokens == 0
    found = bench.of(m.Started, "second")[0].cached_tokens
    assert found > 0
    assert found % 16 == 0
    assert bench.of(m.Done, "second")[0].cached_tokens == found
    assert bench.ids("plain") == bench.ids("first") == bench.ids("second")


@pytest.mark.parametrize("method", [SpeculationMethod.NGRAM, SpeculationMethod.EARLY_EXIT])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_change_nothing_but_the_number_of_steps(
    bench: Bench, method: SpeculationMethod, temperature: float
) -> None:
    settings = SpeculationSettings(method, 3)
    bench.run(
        ask("plain", temperature=temperature, seed=3, max_tokens=40),
        ask("drafted", temperature=temperature, seed=3, max_tokens=40, speculation=settings),
    )
    assert bench.ids("plain") == bench.ids("drafted")
    (done,) = bench.of(m.Done, "drafted")
    told = bench.of(m.Drafted, "drafted")
    assert done.drafted_tokens == sum(len(d.draft_token_ids) for d in told) > 0
    assert done.accepted_tokens == sum(d.num_accepted for d in told)
    assert len(bench.of(m.Step, "drafted")) + done.accepted_tokens == 40
    assert all(len(d.draft_pieces) == len(d.draft_token_ids) for d in told)


def test_sampling_fields_reach_the_sampler(bench: Bench) -> None:
    bench.run(ask("plain", top_logprobs=3))
    first = bench.ids("plain")[0]
    bench.run(ask("biased", logit_bias=((first, -100.0),), top_logprobs=3))
    top = bench.of(m.Token, "biased")[0].top
    assert bench.ids("biased")[0] != first
    assert top[0][0] == first, "log-probabilities are told as they were before the bias"
    assert len(top) == 3
    assert top[0][2] is not None


def test_minimum_and_ignored_ends(bench: Bench) -> None:
    bench.run(ask("plain"))
    ends = (bench.ids("plain")[0],)
    bench.run(
        ask("ended", stop_token_ids=ends),
        ask("later", stop_token_ids=ends, min_tokens=3),
        ask("never", stop_token_ids=ends, ignore_eos=True),
    )
    assert bench.of(m.Done, "ended")[0].completion_tokens == 1
    assert bench.of(m.Done, "later")[0].completion_tokens >= 3
    assert bench.of(m.Done, "never")[0].completion_tokens == 12


def test_a_failing_step_ends_a_request_with_samples_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.take(ask(n=3))
    lane = next(iter(bench.engine._lanes))

    def fail(plan: object) -> object:
        raise RuntimeError("a test asked for this")

    monkeypatch.setattr(lane.opened.executor, "execute", fail)
    with pytest.raises(Exception, match="failed"):
        bench.engine.step()
    assert len(bench.of(m.Failed)) == 1
    assert not bench.of(m.Done)
    assert not bench.engine.has_work
    assert not lane.teller.samples
