"""Quantiles of a stream in bounded memory: exact for few values, to 0.1% for any number.

While there are at most ``EXACT_VALUES`` different values they are kept as they are. Beyond that
they are counted in buckets whose bounds grow by a constant factor: DDSketch of Masson, Rim and Lee
2019 (arXiv 1908.10693), whose relative error is bounded for every quantile. Mean, least and most
are exact always.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

EXACT_VALUES = 4096
RELATIVE_ERROR = 0.001
PERCENTILES = (50, 90, 95, 99)

_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG = 1 / math.log(_GAMMA)
# Beyond these bounds values share a bucket: no time of a simulation is there.
_LEAST, _MOST = 1e-12, 1e12


@dataclass(frozen=True, slots=True)
class Distribution:
    """What is reported of many values: ``percentiles`` are p50, p90, p95 and p99."""

    count: int
    mean: float
    least: float
    most: float
    percentiles: tuple[float, ...]
    exact: bool

    def percentile(self, percent: int) -> float:
        """One of ``PERCENTILES``."""
        return self.percentiles[PERCENTILES.index(percent)]

    def to_document(self) -> dict[str, object]:
        named = {f"p{p}": v for p, v in zip(PERCENTILES, self.percentiles, strict=True)}
        return {
            "count": self.count,
            "mean": self.mean,
            **named,
            "min": self.least,
            "max": self.most,
            "exact": self.exact,
        }


class StreamingQuantiles:
    """Takes values of at least 0, each so many times."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.most = 0.0
        self._values: dict[float, int] | None = {}
        self._buckets: dict[int, int] = {}
        self._zeros = 0

    @property
    def is_exact(self) -> bool:
        """Whether every value is still known."""
        return self._values is not None

    @property
    def memory_entries(self) -> int:
        """Numbers that are kept, of which the memory taken is a multiple."""
        return len(self._buckets) + len(self._values or ())

    def add(self, value: float, times: int = 1) -> None:
        """Take in a value that occurred so many times.

        Raises:
            ValueError: it is negative or no number.
        """
        if not value >= 0:
            raise ValueError("quantiles are kept of numbers of at least 0")
        self.count += times
        self.total += value * times
        if value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        values = self._values
        if values is None:
            self._count_in(value, times)
            return
        values[value] = values.get(value, 0) + times
        if len(values) > EXACT_VALUES:
            self._values = None
            for known, number in values.items():
                self._count_in(known, number)

    def _count_in(self, value: float, times: int) -> None:
        if value < _LEAST:
            self._zeros += times
            return
        index = math.ceil(math.log(min(value, _MOST)) * _PER_LOG)
        self._buckets[index] = self._buckets.get(index, 0) + times

    def quantile(self, share: float) -> float:
        """The least value that at least ``share`` of all values do not exceed.

        Raises:
            ValueError: there is no value, or the share is not from 0 to 1.
        """
        return self.quantiles((share,))[0]

    def quantiles(self, shares: Sequence[float]) -> tuple[float, ...]:
        """As ``quantile``, for shares in rising order, sorting once."""
        if not self.count or not all(0 <= share <= 1 for share in shares):
            raise ValueError("quantiles need a value, and shares from 0 to 1")
        ordered = self._ordered()
        found: list[float] = []
        place = 0
        value, seen = ordered[0]
        for share in shares:
            # A rank is whole; a product such as 0.95 x 20 may lie a rounding above it.
            rank = max(math.ceil(share * self.count - 1e-9), 1)
            while seen < rank:
                place += 1
                value, times = ordered[place]
                seen += times
            found.append(min(max(value, self.least), self.most))
        return tuple(found)

    def _ordered(self) -> list[tuple[float, int]]:
        if self._values is not None:
            return sorted(self._values.items())
        middle = 2 / (_GAMMA + 1)
        buckets = [(middle * _GAMMA**index, n) for index, n in sorted(self._buckets.items())]
        return [(0.0, self._zeros), *buckets] if self._zeros else buckets

    def summary(self) -> Distribution | None:
        """All that is reported; None without a value."""
        if not self.count:
            return None
        return Distribution(
            self.count,
            self.total / self.count,
            self.least,
            self.most,
            self.quantiles([percent / 100 for percent in PERCENTILES]),
            self.is_exact,
        )
