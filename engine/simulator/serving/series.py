"""What a unit holds over time, in a bounded number of bins of equal length.

When the last bin is full, neighbours are merged and bins last twice as long from then on: the
memory taken does not grow with the run.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_BINS = 256
_FIRST_WIDTH = 2.0**-10


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Means over bins of ``width`` seconds from 0 on, of each name; the last bin may be short."""

    width: float
    means: dict[str, tuple[float, ...]]

    def to_document(self) -> dict[str, object]:
        return {"bin_s": self.width, **{name: list(means) for name, means in self.means.items()}}


class BoundedSeries:
    """Integrals over time of a few levels, bin by bin.

    ``names`` are those of the levels. Whatever is not told counts as 0.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.width = _FIRST_WIDTH
        self._bins: list[list[float]] = []

    def add(self, start: float, duration: float, levels: tuple[float, ...]) -> None:
        """Count levels that held from ``start`` on for ``duration`` seconds."""
        end = start + duration
        self._make_room(end)
        width = self.width
        first = int(start / width)
        if end <= (first + 1) * width:
            self._count(first, duration, levels)
            return
        while start < end:
            stop = min((first + 1) * width, end)
            self._count(first, stop - start, levels)
            start = stop
            first += 1

    def fits_one_bin(self, start: float, end: float) -> bool:
        """Whether a span of time lies in one bin, so that its integrals can be given at once."""
        self._make_room(end)
        return end <= (int(start / self.width) + 1) * self.width

    def add_integrals(self, start: float, integrals: tuple[float, ...]) -> None:
        """Count level times seconds, all in the bin of ``start``."""
        self._count(int(start / self.width), 1.0, integrals)

    def _count(self, index: int, duration: float, levels: tuple[float, ...]) -> None:
        while len(self._bins) <= index:
            self._bins.append([0.0] * len(self.names))
        totals = self._bins[index]
        for place, level in enumerate(levels):
            totals[place] += level * duration

    def _make_room(self, end: float) -> None:
        while end > self.width * MAX_BINS:
            bins = self._bins
            if len(bins) % 2:
                bins.append([0.0] * len(self.names))
            self._bins = [
                [a + b for a, b in zip(bins[i], bins[i + 1], strict=True)]
                for i in range(0, len(bins), 2)
            ]
            self.width *= 2

    def means(self, end: float, share: float = 1.0) -> TimeSeries:
        """Time averages of each bin up to the ``end`` of the run, times ``share``."""
        self._make_room(end)
        bins = max(len(self._bins), 1)
        spans = [max(min(self.width, end - i * self.width), 0.0) for i in range(bins)]
        means: dict[str, tuple[float, ...]] = {}
        for place, name in enumerate(self.names):
            totals = [totals[place] for totals in self._bins] or [0.0]
            means[name] = tuple(
                share * total / span if span else 0.0
                for total, span in zip(totals, spans, strict=True)
            )
        return TimeSeries(self.width, means)
