"""Threads that open lanes: who waits for whom, and what is told meanwhile."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.errors import CapacityError
from engine.inference import openings
from engine.inference.lane_orders import LaneOrder, OpeningStage, Report
from engine.inference.lane_settings import parse_lane
from engine.inference.lanes import OpenedLane
from engine.inference.openings import LaneFailed, LaneProgressed, News, Openings

WITHIN = 10.0


class Stage:
    """Openings whose lanes take as long as a test says."""

    def __init__(self) -> None:
        self.news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self.begun: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.let_go = threading.Semaphore(0)
        self.openings = Openings(self.news.put)
        self.openings.start(self._open)

    def _open(self, order: LaneOrder, report: Report) -> OpenedLane:
        order.require_wanted()
        self.begun.put(order.settings.name)
        watched = order.watched(report)
        for step in range(3):
            watched(OpeningStage.LOADING, step / 3, f"layers.{step}")
        if order.takes_long:
            assert self.let_go.acquire(timeout=WITHIN)
            watched(OpeningStage.WARMING_UP, 0.0, "")
        if order.settings.prefix_cache:
            raise CapacityError("no room")
        if order.settings.kv.window:
            raise KeyError("a fault of ours")
        return cast("OpenedLane", SimpleNamespace(settings=order.settings))

    def next(self, kind: type[Any]) -> Any:
        while True:
            news = self.news.get(timeout=WITHIN)
            if isinstance(news, kind) or (kind is OpenedLane and hasattr(news, "settings")):
                return news


@pytest.fixture
def stage() -> Any:
    stage = Stage()
    yield stage
    stage.let_go.release(10)
    stage.openings.stop()


def order(name: str, *, takes_long: bool = False) -> LaneOrder:
    return LaneOrder(parse_lane(name), takes_long)


def test_what_takes_seconds_does_not_wait_for_what_takes_minutes(stage: Stage) -> None:
    stage.openings.add(order("int4-g32-awq", takes_long=True))
    assert stage.begun.get(timeout=WITHIN) == "int4-g32-awq"
    stage.openings.add(order("int8-g32-rtn"))
    assert stage.next(OpenedLane).settings.name == "int8-g32-rtn"
    stage.let_go.release()
    assert stage.next(OpenedLane).settings.name == "int4-g32-awq"


def test_abandoned_orders_are_skipped_and_stopped(stage: Stage) -> None:
    first, second, third = (
        order(name, takes_long=True) for name in ("int4-g32-awq", "int4-g64-awq", "int8-g32-gptq")
    )
    for each in (first, second, third):
        stage.openings.add(each)
    assert stage.begun.get(timeout=WITHIN) == "int4-g32-awq"
    first.abandoned = second.abandoned = True
    stage.let_go.release(2)
    assert stage.begun.get(timeout=WITHIN) == "int8-g32-gptq"
    assert stage.next(OpenedLane).settings.name == "int8-g32-gptq"


def test_failures_are_told_and_the_thread_goes_on(stage: Stage) -> None:
    for name in ("bfloat16/prefix-cache", "bfloat16/paged-window-8", "bfloat16"):
        stage.openings.add(order(name))
    assert stage.next(LaneFailed).error.message == "no room"
    assert stage.next(LaneFailed).error.code == "engine_error"
    assert stage.next(OpenedLane).settings.name == "bfloat16"


@pytest.mark.parametrize(("every", "told"), [(0.0, 3), (1e9, 1)])
def test_progress_is_told_now_and_then(
    monkeypatch: pytest.MonkeyPatch, every: float, told: int
) -> None:
    monkeypatch.setattr(openings, "TELL_EVERY", every)
    stage = Stage()
    stage.openings.add(order("bfloat16"))
    news: list[News] = []
    while not hasattr(news[-1] if news else None, "settings"):
        news.append(stage.news.get(timeout=WITHIN))
    stage.openings.stop()
    progress = [n for n in news if isinstance(n, LaneProgressed)]
    assert len(progress) == told
    assert (progress[0].stage, progress[0].share, progress[0].part) == ("loading", 0.0, "layers.0")
