"""TTFT, ITL, TPOT and end-to-end latency, from events alone: the same for real and predicted."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from engine.scheduling.events import Event, RequestFinished, RequestQueued, TokenProduced
from engine.scheduling.request import FinishReason


@dataclass(slots=True)
class RequestLatency:
    """One request's times in seconds on the loop's clock."""

    arrival: float
    token_times: list[float] = field(default_factory=list[float])
    finish_time: float | None = None
    finish_reason: FinishReason | None = None

    @property
    def ttft(self) -> float | None:
        """Time to first token, from arrival and so with queueing; None before it."""
        return self.token_times[0] - self.arrival if self.token_times else None

    @property
    def itl(self) -> list[float]:
        """Inter-token latencies: each gap between two tokens in a row.

        Tokens that one step gave through accepted drafts came at the same time, so the gaps between
        them are 0: they were waited for together, in the gap before the first of them.
        """
        times = self.token_times
        return [later - earlier for earlier, later in pairwise(times)]

    @property
    def tpot(self) -> float | None:
        """Time per output token: the mean of the gaps; None with fewer than two tokens."""
        times = self.token_times
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None

    @property
    def end_to_end(self) -> float | None:
        """Arrival to the end; None while it runs."""
        return None if self.finish_time is None else self.finish_time - self.arrival


class LatencyRecorder:
    """Collects the latencies of all requests of a loop; pass ``record`` the loop's events."""

    def __init__(self) -> None:
        self.requests: dict[str, RequestLatency] = {}

    def record(self, event: Event) -> None:
        if isinstance(event, RequestQueued):
            self.requests[event.request_id] = RequestLatency(event.time)
        elif isinstance(event, TokenProduced):
            self.requests[event.request_id].token_times.append(event.time)
        elif isinstance(event, RequestFinished):
            latency = self.requests[event.request_id]
            latency.finish_time = event.time
            latency.finish_reason = event.reason

    def mean_ttft(self) -> float | None:
        """Mean TTFT over the requests that got a token."""
        values = [ttft for r in self.requests.values() if (ttft := r.ttft) is not None]
        return fmean(values) if values else None

    def mean_itl(self) -> float | None:
        """Mean over every gap of every request."""
        gaps = [gap for request in self.requests.values() for gap in request.itl]
        return fmean(gaps) if gaps else None
