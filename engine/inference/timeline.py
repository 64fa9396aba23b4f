"""What the engine did lately: from it, what a request waited for between two of its steps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from engine.scheduling.plan import Phase

_STEPS_KEPT = 4_096
_OPENINGS_KEPT = 256


class PauseCause(StrEnum):
    """``LANE``: a step of another lane. ``PREFILL``, ``DECODE``: a step of the same lane in which
    the request had no part, with others' prefill in it or without. ``PREPARING``: no step, but a
    lane was being opened. ``ENGINE``: none of these, such as a process that was stopped."""

    LANE = "lane"
    PREFILL = "prefill"
    DECODE = "decode"
    PREPARING = "preparing"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class _Step:
    start: float
    end: float
    lane: str
    phase: Phase


@dataclass(slots=True)
class Timeline:
    """Steps of all lanes, and the spans in which lanes were being opened; times in seconds on the
    loops' clock. For one thread."""

    _steps: deque[_Step] = field(default_factory=lambda: deque(maxlen=_STEPS_KEPT))
    _openings: deque[tuple[float, float]] = field(
        default_factory=lambda: deque(maxlen=_OPENINGS_KEPT)
    )
    _opening_since: float | None = None

    def stepped(self, lane: str, start: float, duration: float, phase: Phase) -> None:
        """A lane has run a step."""
        self._steps.append(_Step(start, start + duration, lane, phase))

    def opening(self, going_on: bool) -> None:
        """From now on lanes are being opened, or none is."""
        now = time.perf_counter()
        if going_on and self._opening_since is None:
            self._opening_since = now
        elif not going_on and self._opening_since is not None:
            self._openings.append((self._opening_since, now))
            self._opening_since = None

    def causes(self, lane: str, start: float, end: float) -> dict[PauseCause, float]:
        """Seconds from ``start`` to ``end`` by cause, for a request of ``lane`` that had no step
        between them. They add up to the whole, as steps never overlap."""
        seconds: dict[PauseCause, float] = {}
        stepping: list[tuple[float, float]] = []
        for step in reversed(self._steps):
            if step.end <= start:
                break
            span = max(step.start, start), min(step.end, end)
            if span[0] < span[1]:
                stepping.append(span)
                cause = _cause(step, lane)
                seconds[cause] = seconds.get(cause, 0.0) + span[1] - span[0]
        idle = _without((start, end), sorted(stepping))
        preparing = sum(self._preparing(*span) for span in idle)
        if preparing > 0:
            seconds[PauseCause.PREPARING] = preparing
        rest = sum(b - a for a, b in idle) - preparing
        if rest > 0:
            seconds[PauseCause.ENGINE] = rest
        return seconds

    def _preparing(self, start: float, end: float) -> float:
        spans = [*self._openings]
        if self._opening_since is not None:
            spans.append((self._opening_since, end))
        return sum(max(0.0, min(b, end) - max(a, start)) for a, b in spans)


def _cause(step: _Step, lane: str) -> PauseCause:
    if step.lane != lane:
        return PauseCause.LANE
    return PauseCause.DECODE if step.phase is Phase.DECODE else PauseCause.PREFILL


def _without(
    whole: tuple[float, float], parts: Iterable[tuple[float, float]]
) -> list[tuple[float, float]]:
    """What is left of a span without some parts of it, which are in order."""
    left: list[tuple[float, float]] = []
    at, end = whole
    for a, b in parts:
        if at < a:
            left.append((at, a))
        at = max(at, b)
    if at < end:
        left.append((at, end))
    return left
