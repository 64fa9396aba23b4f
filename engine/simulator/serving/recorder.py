"""Turns the loop's events into the figures of a service, in memory that does not grow with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from engine.scheduling.events import (
    Event,
    RequestFinished,
    RequestPreempted,
    RequestStarted,
    StepCompleted,
    TokenProduced,
)
from engine.simulator.serving.quantiles import StreamingQuantiles
from engine.simulator.serving.series import BoundedSeries
from engine.simulator.serving.settings import ServiceLevel
from engine.simulator.serving.stretch import Stretch

LEVELS = ("running", "waiting", "kv_blocks_used", "output_tokens_per_s")


class RequestTimes(NamedTuple):
    """One answered request. Times in seconds; ``arrival`` from the start of the run.

    ``ttft``, ``queued`` and ``e2e`` count from the arrival, ``tpot`` is the mean gap between
    tokens, None with one. ``unit`` is the place of the group of devices that answered it.
    """

    request_id: str
    unit: int
    arrival: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    queued: float
    ttft: float
    tpot: float | None
    e2e: float
    preemptions: int


@dataclass(slots=True)
class Totals:
    """Sums over all units of a run."""

    arrived: int = 0
    finished: int = 0
    refused: int = 0
    good: int = 0
    preemptions: int = 0
    lost_tokens: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    steps: int = 0
    batch: int = 0
    busy: float = 0.0
    in_system: float = 0.0
    e2e: float = 0.0
    first_arrival: float = math.inf
    last_finish: float = 0.0


@dataclass(slots=True)
class _Live:
    """A request that is here. ``last`` is the time of its last token."""

    arrival: float
    queued: float | None = None
    first: float = 0.0
    last: float = 0.0
    cached: int = 0
    preemptions: int = 0


@dataclass(slots=True)
class Statistics:
    """All figures of a run so far."""

    service_level: ServiceLevel = field(default_factory=ServiceLevel)
    totals: Totals = field(default_factory=Totals)
    ttft: StreamingQuantiles = field(default_factory=StreamingQuantiles)
    itl: StreamingQuantiles = field(default_factory=StreamingQuantiles)
    tpot: StreamingQuantiles = field(default_factory=StreamingQuantiles)
    e2e: StreamingQuantiles = field(default_factory=StreamingQuantiles)
    queued: StreamingQuantiles = field(default_factory=StreamingQuantiles)
    series: BoundedSeries = field(default_factory=lambda: BoundedSeries(LEVELS))


class UnitRecorder:
    """Hears the events of one unit. ``on_request`` is told of each answered request.

    ``beside``: requests that get a token in the next step without being told as part of it.
    """

    def __init__(
        self,
        unit: int,
        statistics: Statistics,
        on_request: Callable[[RequestTimes], None] | None = None,
    ) -> None:
        self._unit = unit
        self._statistics = statistics
        self._on_request = on_request
        self._live: dict[str, _Live] = {}
        self._level_since = 0.0
        self.beside = 0
        # Every token of every step is told: the kind of an event is looked up, not tried out.
        self._listeners: dict[type[Any], Callable[[Any], None]] = {
            TokenProduced: self._token,
            StepCompleted: self._step,
            RequestStarted: self._started,
            RequestPreempted: self._preempted,
            RequestFinished: self._finished,
        }

    @property
    def num_live(self) -> int:
        """Requests that have no answer yet."""
        return len(self._live)

    def expect(self, request_id: str, arrival: float) -> None:
        """A request came to the service at that time and is about to be queued."""
        self._level(arrival)
        self._live[request_id] = _Live(arrival)
        totals = self._statistics.totals
        totals.arrived += 1
        totals.first_arrival = min(totals.first_arrival, arrival)

    def refuse(self, request_id: str) -> None:
        """A request that was expected was not taken in."""
        del self._live[request_id]
        self._statistics.totals.refused += 1

    def _level(self, time: float) -> None:
        """Integrate the number of requests in the system up to now, before it changes.

        An arrival during a step is told after the step's end: then it was there since before.
        """
        self._statistics.totals.in_system += len(self._live) * (time - self._level_since)
        self._level_since = time

    def hear(self, event: Event) -> None:
        """Take in one event of the unit's loop."""
        listener = self._listeners.get(type(event))
        if listener is not None:
            listener(event)

    def _started(self, event: RequestStarted) -> None:
        live = self._live[event.request_id]
        if live.queued is None:
            live.queued = event.time - live.arrival
            live.cached = event.cached_tokens

    def _preempted(self, event: RequestPreempted) -> None:
        self._live[event.request_id].preemptions += 1
        self._statistics.totals.preemptions += 1
        self._statistics.totals.lost_tokens += event.lost_tokens

    def _token(self, event: TokenProduced) -> None:
        live = self._live[event.request_id]
        if event.index == 0:
            live.first = event.time
        else:
            self._statistics.itl.add(event.time - live.last)
        live.last = event.time

    def _step(self, event: StepCompleted) -> None:
        totals = self._statistics.totals
        totals.steps += 1
        totals.batch += event.num_running
        totals.busy += event.duration
        samples = self.beside + sum([sequence.shape.samples for sequence in event.sequences])
        levels = (
            event.num_running,
            event.num_waiting,
            event.kv_blocks_used,
            samples / event.duration if event.duration else 0.0,
        )
        self._statistics.series.add(event.time, event.duration, levels)

    def _finished(self, event: RequestFinished) -> None:
        self._level(event.time)
        live = self._live.pop(event.request_id)
        statistics, totals = self._statistics, self._statistics.totals
        tokens = event.completion_tokens
        ttft = live.first - live.arrival
        tpot = (live.last - live.first) / (tokens - 1) if tokens > 1 else None
        e2e = event.time - live.arrival
        queued = live.queued or 0.0
        totals.finished += 1
        totals.prompt_tokens += event.prompt_tokens
        totals.output_tokens += tokens
        totals.cached_tokens += live.cached
        totals.e2e += e2e
        totals.last_finish = max(totals.last_finish, event.time)
        totals.good += statistics.service_level.kept_by(ttft, tpot, e2e)
        statistics.ttft.add(ttft)
        statistics.e2e.add(e2e)
        statistics.queued.add(queued)
        if tpot is not None:
            statistics.tpot.add(tpot)
        if self._on_request is not None:
            self._on_request(
                RequestTimes(
                    event.request_id,
                    self._unit,
                    live.arrival,
                    event.prompt_tokens,
                    tokens,
                    live.cached,
                    queued,
                    ttft,
                    tpot,
                    e2e,
                    live.preemptions,
                )
            )

    def tokens(self, request_ids: Iterable[str], time: float, last: float | None = None) -> None:
        """Each of these requests got a token at that time, and further ones up to ``last``."""
        live, last = self._live, time if last is None else last
        gaps: dict[float, int] = {}  # nearly always one: all had a token at the step before
        for request_id in request_ids:
            one = live[request_id]
            gap = time - one.last
            gaps[gap] = gaps.get(gap, 0) + 1
            one.last = last
        for gap, times in gaps.items():
            self._statistics.itl.add(gap, times)

    def stretch(
        self, stretch: Stretch, request_ids: Iterable[str], waiting: int, blocks_used: Sequence[int]
    ) -> None:
        """Take in steps that gave one token to each of these requests, told at once.

        ``blocks_used`` are those of each step.
        """
        ends, batch = stretch.ends, stretch.batch
        statistics, totals = self._statistics, self._statistics.totals
        totals.steps += len(ends)
        totals.batch += batch * len(ends)
        start, gaps = stretch.start, statistics.itl
        self.tokens(request_ids, ends[0], last=ends[-1])
        for end, blocks in zip(ends, blocks_used, strict=True):
            duration = end - start
            totals.busy += duration
            levels = (batch, waiting, blocks, batch / duration if duration else 0.0)
            statistics.series.add(start, duration, levels)
            if start != stretch.start:
                gaps.add(duration, batch)
            start = end
