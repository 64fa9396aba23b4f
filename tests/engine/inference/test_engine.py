"""The engine as one object: lanes opened on demand, samples, knobs, drafts, probes as messages."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any, TypeVar

import pytest

from engine.errors import InvalidRequest
from engine.inference import messages as m
from engine.inference.engine import Engine
from engine.inference.lane_set import MAX_LANES_ON_DEMAND
from engine.inference.loading import LoadedModel, load_model
from engine.inference.options import EngineOptions
from engine.scheduling.limits import SchedulerLimits
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings

T = TypeVar("T")

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = EngineOptions(
    model="tiny", device="cpu", dtypes="float32", kv_tokens=1024, calibrate="never"
)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(TINY)


class Bench:
    """An engine, all it said, and lanes opened at once when they are asked for."""

    def __init__(self, model: LoadedModel) -> None:
        self.heard: list[m.Message] = []
        limits = SchedulerLimits(max_step_tokens=64, max_context=model.config.max_context)
        self.engine = Engine(model, limits, self.heard.append)

    def take(self, generate: m.Generate) -> None:
        prepared = self.engine.prepare(generate, time.perf_counter())
        if self.engine.missing_lane(prepared) is None:
            self.engine.submit(prepared)
            return
        to_open = self.engine.hold(prepared)
        if to_open is not None:
            self.engine.add_lane(self.engine.open_lane(to_open))

    def run(self, *requests: m.Generate) -> list[m.Message]:
        for generate in requests:
            self.take(generate)
        while self.engine.has_work:
            self.engine.step()
        return self.heard

    def of(self, kind: type[T], request_id: str = "a") -> list[T]:
        return [
            x
            for x in self.heard
            if isinstance(x, kind) and getattr(x, "request_id", "") == request_id
        ]

    def ids(self, request_id: str = "a", sample: int = 0) -> list[int]:
        return [t.id for t in self.of(m.Token, request_id) if t.sample == sample]


@pytest.fixture
def bench(model: LoadedModel) -> Bench:
    return Bench(model)


def ask(request_id: str = "a", **fields: Any) -> m.Generate:
    return m.Generate(request_id, **{"prompt": "one two three one two", "max_tokens": 12, **fields})


LANES = ["paged", "contiguous", "off", "paged-int8", "paged-int4", "paged-window-8-sinks-2"]


@pytest.mark.parametrize("kv_cache", LANES)
def test_every_cache_runs_on_demand_and_says_what_it_is(bench: Bench, kv_cache: str) -> None:
    bench.run(ask(kv_cache=kv_cache))
    (accepted,), (done,) = bench.of(m.Accepted), bench.of(m.Done)
    assert done.completion_tokens == len(bench.ids()) == 12
    lane = next(lane for lane in bench.engine.info.lanes if lane.name == accepted.lane)
    assert (lane.kv_cache, lane.on_demand) == (kv_cache, kv_cache != "paged")
    if kv_cache != "paged":
        assert accepted.opening_ms > 0
        told = [type(message) for message in bench.heard]
        assert told.index(m.Opening) < told.index(m.Accepted)
        assert m.EngineInfo in told[told.index(m.Opening) : told.index(m.Accepted)]


@pytest.mark.parametrize("kv_cache", ["contiguous", "off"])
def test_exact_caches_give_the_same_tokens(bench: Bench, kv_cache: str) -> None:
    bench.run(ask("a"), ask("b", kv_cache=kv_cache))
    assert bench.ids("a") == bench.ids("b")


def test_the_cache_off_computes_the_whole_text_each_step(bench: Bench) -> None:
    bench.run(ask(kv_cache="off", max_tokens=4))
    prompt = len(bench.of(m.Accepted)[0].prompt_token_ids)
    assert [s.shapes for s in bench.of(m.Step)] == [((0, prompt + i, True, 0),) for i in range(4)]
    assert bench.engine.info.lanes[-1].kv_bytes_per_token == 0


@pytest.mark.parametrize("weights", ["int8", "int4", "int8-channel", "int4-tensor"])
def test_weights_are_quantised_on_demand(bench: Bench, weights: str) -> None:
    bench.run(ask(weights=weights))
    plain, lane = bench.engine.info.lanes
    assert bench.of(m.Done)[0].completion_tokens == 12
    assert lane.weight_bytes < plain.weight_bytes
    assert lane.weight_format.startswith("mixed-")
    bits = float(lane.weight_format.removeprefix("mixed-"))
    assert 4 <= bits <= 5.1 if "int4" in weights else 8 <= bits <= 8.6


def test_lanes_make_room_for_others_and_idle_ones_go_first(bench: Bench) -> None:
    caches = [f"paged-window-{n}" for n in range(8, 8 + MAX_LANES_ON_DEMAND + 1)]
    for number, kv_cache in enumerate(caches):
        bench.run(ask(str(number), kv_cache=kv_cache, max_tokens=1))
    on_demand = [lane.kv_cache for lane in bench.engine.info.lanes if lane.on_demand]
    assert on_demand == caches[1:]


def test_a_closed_lane_is_freed_at_once(bench: Bench) -> None:
    gc.collect()
    gc.disable()
    try:
        bench.run(ask("0", kv_cache="paged-window-8", max_tokens=1))
        lane = bench.engine._lanes.get("float32/paged-window-8")
        assert lane is not None
        cache = weakref.ref(lane.opened.executor._cache)
        del lane
        for number in range(1, MAX_LANES_ON_DEMAND + 1):
            bench.run(ask(str(number), kv_cache=f"paged-window-{number + 8}", max_tokens=1))
        assert cache() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("native", ["auto", "off"])
def test_a_contiguous_cache_holds_long_texts(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, native: str
) -> None:
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", native)
    bench = Bench(model)
    prompt = "a long text of many words, " * 12
    bench.run(ask("a", prompt=prompt), ask("b", prompt=prompt, kv_cache="contiguous"))
    assert len(bench.of(m.Accepted)[0].prompt_token_ids) > 128
    assert bench.ids("a") == bench.ids("b")


def test_a_contiguous_lane_obeys_knobs_that_suit_a_paged_one(bench: Bench) -> None:
    bench.engine.configure(m.Configure("k", usable_blocks=50))
    bench.run(ask(kv_cache="contiguous"))
    assert bench.of(m.Done)


def test_with_the_cache_off_no_text_is_longer_than_a_step(bench: Bench) -> None:
    bench.run(ask(kv_cache="off", max_tokens=60))
    assert bench.of(m.Failed)[0].code == "never_fits"


def test_prompts_that_wait_for_a_lane_are_limited(model: LoadedModel) -> None:
    heard: list[m.Message] = []
    engine = Engine(model, SchedulerLimits(max_running=1, max_waiting=2), heard.append)
    for number in range(4):
        engine.hold(engine.prepare(ask(str(number), kv_cache="contiguous"), time.perf_counter()))
    assert [x.request_id for x in heard if isinstance(x, m.Failed)] == ["3"]


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


def test_a_lane_in_use_is_not_closed(bench: Bench) -> None:
    for number in range(MAX_LANES_ON_DEMAND):
        bench.take(ask(str(number), kv_cache=f"paged-window-{number + 8}"))
    bench.take(ask("late", kv_cache="contiguous"))
    (refusal,) = bench.of(m.Failed, "late")
    assert refusal.code == "queue_full"
    bench.run()
    assert all(bench.of(m.Done, str(number)) for number in range(MAX_LANES_ON_DEMAND))


def test_a_request_aborted_while_its_lane_opens_ends_once(bench: Bench) -> None:
    prepared = bench.engine.prepare(ask(kv_cache="contiguous"), time.perf_counter())
    to_open = bench.engine.hold(prepared)
    assert to_open is not None
    bench.engine.abort("a")
    bench.engine.add_lane(bench.engine.open_lane(to_open))
    bench.run()
    (done,) = bench.of(m.Done)
    assert (done.finish_reason, done.completion_tokens, done.samples_left) == ("abort", 0, 0)


def test_requests_for_a_lane_that_cannot_be_opened_are_refused(bench: Bench) -> None:
    first = bench.engine.prepare(ask(weights="file"), time.perf_counter())
    second = bench.engine.prepare(ask("b", weights="file"), time.perf_counter())
    to_open = bench.engine.hold(first)
    assert to_open is not None
    assert bench.engine.hold(second) is None
    with pytest.raises(InvalidRequest) as error:  # the tiny model has no blocks
        bench.engine.open_lane(to_open)
    bench.engine.lane_failed(to_open, error.value)
    for name in ("a", "b"):
        assert bench.of(m.Failed, name)[0].field == "weights"


def test_an_id_is_known_while_its_lane_opens(bench: Bench) -> None:
    held = bench.engine.prepare(ask(kv_cache="contiguous"), time.perf_counter())
    bench.engine.hold(held)
    bench.take(ask())
    assert bench.of(m.Failed)[0].code == "invalid_request"


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


def test_knobs_are_turned_for_open_and_later_lanes(bench: Bench) -> None:
    bench.engine.configure(m.Configure("k", max_step_tokens=4, policy="fair", max_running=1))
    bench.run(ask(max_tokens=2), ask("b", kv_cache="contiguous", max_tokens=2))
    assert bench.of(m.Configured, "k") == [m.Configured("k", 1, 4, "fair", None)]
    for name in ("a", "b"):
        assert max(step.tokens for step in bench.of(m.Step, name)) <= 4
    info = bench.engine.info
    assert (info.policy, info.max_step_tokens, info.max_running) == ("fair", 4, 1)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"policy": "loudest"}, "policy"),
        ({"max_running": 0}, "max_running"),
        ({"max_step_tokens": 0}, "max_step_tokens"),
        ({"usable_blocks": 0}, "usable_blocks"),
        ({"usable_blocks": 10_000}, "usable_blocks"),
    ],
)
def test_senseless_knobs_are_refused_and_nothing_changes(
    bench: Bench, change: dict[str, Any], field: str
) -> None:
    before = bench.engine.info
    bench.engine.configure(m.Configure("k", **change))
    assert bench.of(m.Failed, "k")[0].field == field
    assert bench.engine.info == before
    bench.run(ask())
    assert bench.of(m.Done)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kv_cache": "contiguous", "prefix_cache": True}, "kv_cache"),
    ({"kv_cache": "off", "n": 2}, "kv_cache"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"min_tokens": 13}, "min_tokens"),
    ({"weights": "int3"}, "weights"),
    ({"kv_cache": "heap"}, "kv_cache"),
    (
        {"kv_cache": "off", "speculation": SpeculationSettings(SpeculationMethod.NGRAM)},
        "speculation",
    ),
    ({"speculation": SpeculationSettings(SpeculationMethod.DRAFT)}, "speculation"),
    (
        {"speculation": SpeculationSettings(SpeculationMethod.EARLY_EXIT, exit_layer=2)},
        "speculation",
    ),
    ({"repetition_penalty": float("nan")}, "repetition_penalty"),
    ({"logit_bias": ((10**6, 1.0),)}, "logit_bias"),
    ({"top_logprobs": 21}, "top_logprobs"),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_makes_no_sense_is_refused_before_anything_is_loaded(
    bench: Bench, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        bench.engine.prepare(ask(**fields), time.perf_counter())
    assert refusal.value.field == field
    assert refusal.value.message


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


def test_probes_are_answered_as_documents(bench: Bench) -> None:
    question = m.Probe("p", "attention", {"token_ids": [1, 2, 3], "layer": 0, "head": 1})
    document = bench.engine.probe(question).document
    assert document["kind"] == "attention"
    assert document["basis"] == "measured"


@pytest.mark.parametrize(
    ("kind", "arguments", "field"),
    [
        ("colours", {}, "kind"),
        ("attention", {"token_ids": [1], "layer": 0, "head": 0, "tail": 1}, "tail"),
        ("attention", {"token_ids": [1], "layer": 0}, "head"),
        ("attention", {"token_ids": [1], "layer": True, "head": 0}, "layer"),
        ("attention", {"token_ids": [], "layer": 0, "head": 0}, "token_ids"),
        ("attention", {"token_ids": "1", "layer": 0, "head": 0}, "token_ids"),
        ("comparison", {"token_ids": [1, 2], "ablations": ["all"]}, "ablations"),
        ("logit-lens", {"token_ids": [1], "position": 1}, "position"),
    ],
)
def test_senseless_probes_name_the_field(
    bench: Bench, kind: str, arguments: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        bench.engine.probe(m.Probe("p", kind, arguments))
    assert refusal.value.field == field


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
