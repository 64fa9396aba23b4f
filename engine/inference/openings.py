"""Threads that open lanes, so that steps go on meanwhile.

One opens what takes seconds, and one what takes minutes: AWQ and GPTQ hold up nobody who did not
ask for them. Both stop early, or do not begin, where nobody waits any more.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import EngineError
from engine.inference.lane_orders import LaneAbandoned, LaneOrder, OpeningStage, Report
from engine.inference.lanes import OpenedLane
from engine.refusals import refused

log = logging.getLogger(__name__)

TELL_EVERY = 0.2
"""Seconds between two reports of one stage: what goes on for minutes needs no more."""


@dataclass(frozen=True, slots=True)
class LaneFailed:
    """The lane could not be opened."""

    order: LaneOrder
    error: EngineError


@dataclass(frozen=True, slots=True)
class LaneProgressed:
    """How far the lane is; see ``engine.inference.lane_orders.Report``."""

    order: LaneOrder
    stage: OpeningStage
    share: float
    part: str


News = OpenedLane | LaneFailed | LaneProgressed
OpenLane = Callable[[LaneOrder, Report], OpenedLane]


class Openings:
    """Opens what is ordered, first come, first served on each of the two threads."""

    def __init__(self, tell: Callable[[News], None]) -> None:
        """``tell`` is called from the threads."""
        self._tell = tell
        self._orders: dict[bool, queue.SimpleQueue[LaneOrder | None]] = {
            takes_long: queue.SimpleQueue() for takes_long in (False, True)
        }

    def start(self, open_lane: OpenLane) -> None:
        """Start both threads; they end with the process, or after ``stop``. ``open_lane`` may raise
        ``EngineError`` and ``LaneAbandoned``."""
        for takes_long, orders in self._orders.items():
            name = "long openings" if takes_long else "openings"
            work = (orders, open_lane)
            threading.Thread(target=self._work, args=work, name=name, daemon=True).start()

    def add(self, order: LaneOrder) -> None:
        """Open this lane after those of its kind that were ordered before."""
        self._orders[order.takes_long].put(order)

    def stop(self) -> None:
        """No more orders come."""
        for orders in self._orders.values():
            orders.put(None)

    def _work(self, orders: queue.SimpleQueue[LaneOrder | None], open_lane: OpenLane) -> None:
        while (order := orders.get()) is not None:
            # Nothing here refers to the lane while this waits: once closed, it is to be freed.
            self._open(order, open_lane)

    def _open(self, order: LaneOrder, open_lane: OpenLane) -> None:
        try:
            news: News = open_lane(order, self._report(order))
        except LaneAbandoned:
            log.info("lane %s is not opened: nobody waits for it", order.settings.name)
            return
        except EngineError as error:
            news = LaneFailed(order, error)
        except Exception:
            log.exception("a lane could not be opened")
            news = LaneFailed(order, refused("fault", kind=EngineError))
        self._tell(news)

    def _report(self, order: LaneOrder) -> Report:
        told_stage: OpeningStage | None = None
        told_at = 0.0

        def report(stage: OpeningStage, share: float, part: str) -> None:
            nonlocal told_stage, told_at
            now = time.monotonic()
            if stage is told_stage and now - told_at < TELL_EVERY:
                return
            told_stage, told_at = stage, now
            self._tell(LaneProgressed(order, stage, share, part))

        return report
