"""Which earlier positions a token sees, and hence which have to be read. Integers only.

A layer of a model may have a window of its own, and a cache may have one too. A cache can hide
positions, never show what the model hides: a position is visible if it is not in the future, is
within the model's window, and is within the cache's window or among its sinks.

The cache's window and sinks take their shape from StreamingLLM (Xiao et al. 2023, arXiv
2309.17453), with one difference. There, the positions that are left are numbered anew at every
step, so that the model never sees a distance larger than the window; here, every key keeps the
rotation of its true position. A text that is longer than the model was trained for is therefore
not made any safer by a window, and up to that length no key is ever rotated twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Visibility:
    """A token at position i sees j <= i where i - j < ``window``, or j < ``sinks`` and
    i - j < ``reach``. None: any distance."""

    window: int | None = None
    sinks: int = 0
    reach: int | None = None

    def within(self, length: int) -> Visibility:
        """The same for texts of up to ``length`` positions: simply all, if nothing is hidden."""
        return EVERYTHING if self.window is None or self.window >= length else self

    def spans(self, start: int, stop: int) -> tuple[range, ...]:
        """What the tokens at positions ``start`` to ``stop`` see between them: one run of
        positions, or that of the sinks and that of the window."""
        first = 0 if self.window is None else max(0, start - self.window + 1)
        nearest_sink = 0 if self.reach is None else max(0, start - self.reach + 1)
        sinks = range(nearest_sink, min(self.sinks, first))
        if not sinks:
            return (range(first, stop),)
        if sinks.stop == first:
            return (range(sinks.start, stop),)
        return (sinks, range(first, stop))

    def hidden(self, queries: NDArray[np.int64], keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether a token at position ``queries`` may not see ``keys``; the two broadcast."""
        distance = queries - keys
        future = distance < 0
        if self.window is None:
            return future
        far = distance >= self.window
        if self.sinks:
            is_sink = keys < self.sinks
            if self.reach is not None:
                is_sink = is_sink & (distance < self.reach)
            far &= ~is_sink
        return future | far


EVERYTHING = Visibility()


def combined(model_window: int | None, cache_window: int | None, sinks: int) -> Visibility:
    """What is visible to a layer with ``model_window`` in a cache with a window and sinks."""
    if cache_window is None or (model_window is not None and model_window <= cache_window):
        return Visibility(model_window)
    return Visibility(cache_window, sinks, model_window)


def whole_pages(spans: Sequence[range], page_size: int) -> tuple[range, ...]:
    """``spans`` widened to whole pages, except that the last one ends where it did; spans that
    come to share a page or to touch become one."""
    widened: list[range] = []
    for span in spans:
        start = span.start // page_size * page_size
        if widened and start <= -(-widened[-1].stop // page_size) * page_size:
            start = widened.pop().start
        elif widened:
            last = widened.pop()
            widened.append(range(last.start, -(-last.stop // page_size) * page_size))
        widened.append(range(start, span.stop))
    return tuple(widened)


def pages_of(spans: Sequence[range], page_size: int) -> list[int]:
    """The pages that hold ``whole_pages`` spans, in order: indexes into a table of pages."""
    return [
        page
        for span in spans
        for page in range(span.start // page_size, -(-span.stop // page_size))
    ]
