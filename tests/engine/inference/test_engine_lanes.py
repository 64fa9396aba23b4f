"""The engine as one object: lanes that are opened on demand, held for, and closed again."""

from __future__ import annotations

import gc
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidRequest
from engine.inference import messages as m
from engine.inference.engine import Engine
from engine.inference.lane_orders import LaneAbandoned, OpeningStage
from engine.inference.lane_set import MAX_LANES_ON_DEMAND
from engine.inference.loading import LoadedModel
from engine.scheduling.limits import SchedulerLimits
from tests.engine.inference.engine_for_tests import Bench, ask

pytestmark = pytest.mark.usefixtures("one_thread")


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
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch, native: str
) -> None:
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", native)
    bench = Bench(tiny_model)
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


def test_prompts_that_wait_for_a_lane_are_limited(tiny_model: LoadedModel) -> None:
    heard: list[m.Message] = []
    engine = Engine(tiny_model, SchedulerLimits(max_running=1, max_waiting=2), heard.append)
    for number in range(4):
        engine.hold(engine.prepare(ask(str(number), kv_cache="contiguous"), time.perf_counter()))
    assert [x.request_id for x in heard if isinstance(x, m.Failed)] == ["3"]


def test_a_lane_in_use_is_not_closed(bench: Bench) -> None:
    for number in range(MAX_LANES_ON_DEMAND):
        bench.take(ask(str(number), kv_cache=f"paged-window-{number + 8}"))
    bench.take(ask("late", kv_cache="contiguous"))
    (refusal,) = bench.of(m.Failed, "late")
    assert (refusal.code, refusal.reason) == ("lanes_full", "lanes_full")
    bench.run()
    assert all(bench.of(m.Done, str(number)) for number in range(MAX_LANES_ON_DEMAND))


def test_a_request_aborted_while_its_lane_opens_ends_once(bench: Bench) -> None:
    prepared = bench.engine.prepare(ask(kv_cache="contiguous"), time.perf_counter())
    to_open = bench.engine.hold(prepared)
    assert to_open is not None
    opened = bench.engine.open_lane(to_open)
    bench.engine.abort("a")
    bench.engine.add_lane(opened)
    bench.run()
    (done,) = bench.of(m.Done)
    assert (done.finish_reason, done.completion_tokens, done.samples_left) == ("abort", 0, 0)
    assert len(bench.engine.info.lanes) == 1, "a lane that nobody waits for is not kept"


def test_an_abandoned_lane_is_not_opened_and_may_be_asked_for_again(bench: Bench) -> None:
    to_open = bench.hold(ask(kv_cache="contiguous"))
    bench.engine.abort("a")
    with pytest.raises(LaneAbandoned):
        bench.engine.open_lane(to_open)
    bench.run(ask("b", kv_cache="contiguous"))
    assert bench.of(m.Done, "b")[0].finish_reason == "length"


@pytest.mark.parametrize("weights", ["bfloat16", "int8", "int4-awq", "int8-gptq"])
def test_opening_ends_at_the_next_safe_point_once_nobody_waits(
    bench: Bench, weights: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FIRSTTOKEN_STATE", str(tmp_path))
    to_open = bench.hold(ask(weights=weights))
    stage = OpeningStage.LOADING if weights == "bfloat16" else OpeningStage.QUANTIZING
    heard: list[tuple[OpeningStage, float, str]] = []

    def report(*progress: Any) -> None:
        heard.append(progress)
        if progress[0] is stage:
            bench.engine.abort("a")

    with pytest.raises(LaneAbandoned):
        bench.engine.open_lane(to_open, report)
    assert heard == [(stage, 0.0, "layers.0")]
    assert not list(tmp_path.rglob("*.npz")), "what was begun is not kept"


@pytest.mark.parametrize("weights", ["int8", "int4-awq"])
def test_progress_is_told_to_all_who_wait(
    bench: Bench, weights: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FIRSTTOKEN_STATE", str(tmp_path))
    to_open = bench.hold(ask("a", weights=weights))
    bench.engine.hold(bench.engine.prepare(ask("b", weights=weights), time.perf_counter()))

    def report(stage: OpeningStage, share: float, part: str) -> None:
        bench.engine.opening_progressed(to_open, stage, share, part)

    bench.engine.add_lane(bench.engine.open_lane(to_open, report))
    told = {name: bench.of(m.Opening, name) for name in ("a", "b")}
    stages = list(dict.fromkeys(opening.stage for opening in told["a"]))
    assert stages == ["waiting", "quantizing", "loading", "warming_up"]
    assert [replace(t, request_id="b") for t in told["a"]] == told["b"]
    quantizing = [t for t in told["a"] if t.stage == "quantizing"]
    assert (quantizing[0].share, quantizing[0].part) == (0.0, "layers.0")
    assert {"layers.1", "lm_head"} <= {t.part for t in quantizing}
    assert [t.share for t in quantizing] == sorted(t.share for t in quantizing)
    assert quantizing[-1].share == 1.0


def test_those_who_wait_know_their_place(bench: Bench) -> None:
    for number, lane in enumerate(["paged-window-8", "contiguous", "off"]):
        bench.hold(ask(str(number), kv_cache=lane))
    bench.hold(ask("long", weights="int8-tensor-awq"))
    places = {
        name: [o.ahead for o in bench.of(m.Opening, name)] for name in ("0", "1", "2", "long")
    }
    assert places == {"0": [0], "1": [1], "2": [2], "long": [0]}
    bench.engine.abort("1")
    assert [o.ahead for o in bench.of(m.Opening, "2")] == [2, 1]
    assert [o.ahead for o in bench.of(m.Opening, "0")] == [0], "nothing has changed for this one"


def test_a_lane_that_is_opened_for_others_serves_who_asks_again(bench: Bench) -> None:
    first = bench.hold(ask("a", kv_cache="contiguous"))
    opened = bench.engine.open_lane(first)
    bench.engine.abort("a")
    second = bench.hold(ask("b", kv_cache="contiguous"))
    bench.engine.lane_failed(first, InvalidRequest("told too late"))
    bench.engine.add_lane(opened)
    assert second.abandoned
    bench.run()
    assert bench.of(m.Done, "b")[0].finish_reason == "length"


def test_the_engine_is_only_told_again_where_something_has_changed(bench: Bench) -> None:
    for number in range(MAX_LANES_ON_DEMAND):
        bench.run(ask(str(number), kv_cache=f"paged-window-{number + 8}", max_tokens=1))
    before = len([x for x in bench.heard if isinstance(x, m.EngineInfo)])
    assert before == MAX_LANES_ON_DEMAND
    bench.hold(ask("a", kv_cache="contiguous"))
    bench.engine.hold(bench.engine.prepare(ask("b", kv_cache="contiguous"), time.perf_counter()))
    told = [x for x in bench.heard if isinstance(x, m.EngineInfo)][before:]
    assert [len(info.lanes) for info in told] == [MAX_LANES_ON_DEMAND]


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


def test_a_lane_tells_once_that_it_runs_natively_from_now_on(bench: Bench) -> None:
    lane = next(iter(bench.engine._lanes))
    rows = lane.opened.executor.native_rows
    lane.native_rows = rows + 1  # as before the library was built
    bench.run(ask())
    told = bench.of(m.EngineInfo, "")
    assert [info.lanes[0].native_rows for info in told] == [rows]
    bench.run(ask("again"))
    assert len(bench.of(m.EngineInfo, "")) == 1
