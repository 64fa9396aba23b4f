"""The numbers of one point: percentiles of its answers' times, throughput, and what failed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from engine.measuring.reply import Reply

_ONE_BY_ONE = 1.5
"""Tokens a read up to which the gaps between reads are gaps between tokens."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of a number over answers, in its unit."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """The spread of the values that are there; None where none is."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        p50, p90, p99 = np.percentile(known, [50, 90, 99]).tolist()
        return cls(len(known), fmean(known), p50, p90, p99)


@dataclass(frozen=True, slots=True)
class Point:
    """``replies`` to prompts that should have ``wanted_tokens``, ``concurrency`` at once.

    ``planned`` requests were to be sent; fewer replies mean that the point was given up or stopped.
    """

    wanted_tokens: int
    concurrency: int
    planned: int
    replies: tuple[Reply, ...]

    @property
    def good(self) -> tuple[Reply, ...]:
        """Whole answers: only their times count."""
        return tuple(reply for reply in self.replies if reply.ok)

    @property
    def failures(self) -> dict[str, int]:
        """How many requests failed, by kind, the most frequent first."""
        kinds = Counter(str(reply.failure) for reply in self.replies if reply.failure is not None)
        return dict(kinds.most_common())

    @property
    def failure_details(self) -> dict[str, str]:
        """What was said of the first failure of each kind."""
        found: dict[str, str] = {}
        for reply in self.replies:
            if reply.failure is not None:
                found.setdefault(str(reply.failure), reply.detail)
        return found

    @property
    def prompt_tokens(self) -> float | None:
        """Mean prompt tokens by the server's count; None where it counts none."""
        return _mean(reply.usage.prompt for reply in self.good)

    @property
    def output_tokens(self) -> float | None:
        """Mean output tokens: by the server's count, else by chunks."""
        return _mean(reply.tokens for reply in self.good)

    @property
    def counted(self) -> bool:
        """Whether the server counted the tokens of every answer."""
        return bool(self.good) and all(reply.usage.output is not None for reply in self.good)

    @property
    def cached_tokens(self) -> float | None:
        """Mean prompt tokens that the server says it had cached; None where it does not say."""
        return _mean(reply.usage.cached for reply in self.good)

    @property
    def tokens_a_read(self) -> float | None:
        """Output tokens over reads that brought text: above 1, a gap holds several tokens."""
        reads = sum(len(reply.arrivals) for reply in self.good)
        return sum(reply.tokens for reply in self.good) / reads if reads else None

    @property
    def ttft(self) -> Spread | None:
        return Spread.of(reply.ttft for reply in self.good)

    @property
    def itl(self) -> Spread | None:
        """Over answers: each one's mean seconds a token."""
        return Spread.of(reply.itl for reply in self.good)

    @property
    def gaps(self) -> Spread | None:
        """Over all answers' gaps between reads: what somebody who watches sees."""
        return Spread.of(gap for reply in self.good for gap in reply.gaps)

    @property
    def token_gaps(self) -> Spread | None:
        """The gaps where a read brings one token, so that they are gaps between tokens."""
        each = self.tokens_a_read
        return self.gaps if each is not None and each <= _ONE_BY_ONE else None

    @property
    def latency(self) -> Spread | None:
        """Seconds of whole answers."""
        return Spread.of(reply.total for reply in self.good)

    @property
    def connect(self) -> Spread | None:
        return Spread.of(reply.connect for reply in self.good)

    @property
    def busy_window(self) -> tuple[float, float] | None:
        """From when to when on the clock as many requests as planned were under way.

        That is from the first time to the last: between two requests a client pauses for an
        instant. None where there never were so many.
        """
        changes = sorted(
            [(reply.sent, 1) for reply in self.replies]
            + [(reply.sent + reply.total, -1) for reply in self.replies]
        )
        running, first, last = 0, math.inf, -math.inf
        for at, change in changes:
            if change < 0 and running >= self.concurrency:
                last = at
            running += change
            if running >= self.concurrency:
                first = min(first, at)
        return (first, last) if first < last else None

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens of all answers that came in the busy window, over its seconds."""
        window = self.busy_window
        if window is None or not self.good:
            return None
        start, end = window
        came = math.fsum(_tokens_between(reply, start, end) for reply in self.good)
        return came / (end - start)

    @property
    def whole_tokens_per_s(self) -> float | None:
        """Output tokens over all seconds of the point, its start and its end included."""
        if not self.good:
            return None
        start = min(reply.sent for reply in self.replies)
        end = max(reply.sent + reply.total for reply in self.replies)
        return sum(reply.tokens for reply in self.good) / (end - start)

    @property
    def server_timings(self) -> dict[str, float]:
        """Means of the numbers that the server sent of itself, by its names."""
        names = {name: None for reply in self.good for name in reply.timings}
        return {
            name: fmean(r.timings[name] for r in self.good if name in r.timings) for name in names
        }


def _tokens_between(reply: Reply, start: float, end: float) -> float:
    chunks = sum(item.chunks for item in reply.arrivals if start < reply.sent + item.at <= end)
    return chunks * reply.tokens_a_chunk


def _mean(values: Iterable[int | None]) -> float | None:
    known: Sequence[int] = [value for value in values if value is not None]
    return fmean(known) if known else None
