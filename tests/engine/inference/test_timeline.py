"""What a request waited for adds up to the time it waited, each part with its true cause."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from engine.inference import messages as m
from engine.inference import timeline as timeline_module
from engine.inference.timeline import PauseCause, Timeline
from engine.scheduling.plan import Phase
from tests.engine.inference.engine_for_tests import Bench, ask

CAUSES = {cause.value for cause in PauseCause}


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    """One that was told of these steps and openings, in seconds:

    0-1 own lane, decode · 1-2 other lane · 2-3 own lane, prefill of others · 4-5 other lane;
    lanes are opened from 3.5 to 4.5 and from 6 on.
    """
    made = Timeline()
    for lane, start, phase in (
        ("own", 0.0, Phase.DECODE),
        ("other", 1.0, Phase.PREFILL),
        ("own", 2.0, Phase.MIXED),
        ("other", 4.0, Phase.DECODE),
    ):
        made.stepped(lane, start, 1.0, phase)
    for now, going_on in ((3.5, True), (4.5, False), (5.5, False), (6.0, True), (6.2, True)):
        monkeypatch.setattr(timeline_module.time, "perf_counter", lambda now=now: now)
        made.opening(going_on)
    return made


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (1.0, 2.0, {"lane": 1.0}),
        (1.5, 3.0, {"lane": 0.5, "prefill": 1.0}),
        (0.5, 1.0, {"decode": 0.5}),
        (3.0, 3.5, {"engine": 0.5}),
        (3.0, 5.0, {"engine": 0.5, "preparing": 0.5, "lane": 1.0}),
        (5.0, 7.0, {"engine": 1.0, "preparing": 1.0}),
        (8.0, 8.0, {}),
    ],
)
def test_causes(timeline: Timeline, start: float, end: float, expected: dict[str, float]) -> None:
    assert timeline.causes("own", start, end) == pytest.approx(expected)


def test_the_memory_of_a_timeline_is_bounded() -> None:
    timeline = Timeline()
    for number in range(10_000):
        timeline.stepped("own", float(number), 0.5, Phase.DECODE)
        timeline.opening(number % 2 == 0)
    assert len(timeline._steps) < 5_000
    assert len(timeline._openings) < 500


def _pauses(bench: Bench, request_id: str) -> dict[str, float]:
    causes: dict[str, float] = {}
    for step in bench.of(m.Step, request_id)[1:]:
        for cause, ms in step.pauses_ms.items():
            causes[cause] = causes.get(cause, 0.0) + ms
    return causes


@pytest.fixture
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.inference.telling.SHORTEST_PAUSE", 0.0)


@pytest.mark.usefixtures("one_thread", "told_at_once")
def test_pauses_add_up_to_the_time_between_steps(bench: Bench) -> None:
    bench.run(ask("a"), ask("b", kv_cache="contiguous"), ask("c", prompt="many words " * 40))
    for name in ("a", "b", "c"):
        steps = bench.of(m.Step, name)
        assert steps
        for before, step in itertools.pairwise(steps):
            gap = step.start_ms - before.start_ms - before.time_ms
            assert step.pauses_ms.keys() <= CAUSES
            assert sum(step.pauses_ms.values()) == pytest.approx(max(gap, 0.0), abs=1e-3)
    assert _pauses(bench, "a")["lane"] > 0
    assert "preparing" not in _pauses(bench, "a")


@pytest.mark.usefixtures("one_thread", "told_at_once")
def test_who_waits_while_a_lane_is_opened_hears_that(bench: Bench) -> None:
    bench.take(ask("a"))
    bench.engine.step()
    order = bench.hold(ask("b", kv_cache="contiguous"))
    opened = bench.engine.open_lane(order)
    bench.engine.add_lane(opened)
    bench.run()
    assert opened.seconds * 1e3 < _pauses(bench, "a")["preparing"]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["prefill", "decode", "decode"]),
        ({"kv_cache": "off"}, ["prefill", "recompute", "recompute"]),
    ],
)
def test_with_the_cache_off_steps_are_recomputations(
    bench: Bench, fields: dict[str, Any], expected: list[str]
) -> None:
    bench.run(ask(max_tokens=3, **fields))
    steps = bench.of(m.Step)
    assert [step.phase for step in steps] == expected
    assert [step.step_phase for step in steps] == expected


@pytest.mark.usefixtures("one_thread")
def test_what_is_computed_again_after_a_preemption_is_no_prefill(bench: Bench) -> None:
    bench.engine.configure(m.Configure("k", usable_blocks=5))
    bench.run(ask("a", max_tokens=50), ask("b", max_tokens=50))
    preempted = {x.request_id for x in bench.heard if isinstance(x, m.Preempted)}
    assert preempted
    for name in preempted:
        phases = [step.phase for step in bench.of(m.Step, name)]
        assert phases.count("prefill") == 1
        assert "recompute" in phases
