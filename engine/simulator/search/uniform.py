"""Steps of equal sequences as arrays: what each asks of a model, for thousands of them at once.

The counts are those of ``engine.simulator.work``, without its branches, so that arrays of any
shapes that broadcast together can be counted in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.simulator.work import (
    MOST_ABSORBED_TOKENS,
    CausalWork,
    EntryWork,
    LatentWork,
    Measure,
    StateWork,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_GAUSS = 0.5 / 3**0.5


class WorkArrays(NamedTuple):
    """Query-key pairs, entries read and tokens of steps, of one layer and head."""

    pairs: Floats
    reads: Floats
    tokens: Floats


@dataclass(frozen=True, slots=True)
class UniformSteps:
    """Steps of ``sequences`` sequences each, with ``prefix`` cached positions and ``new`` tokens.

    The arrays broadcast together; sequences may be a fraction. Every sequence samples once.
    """

    sequences: Floats
    prefix: Ints
    new: Ints

    @property
    def tokens(self) -> Floats:
        """Tokens of each step."""
        return self.sequences * self.new

    @property
    def sampled(self) -> Floats:
        """Positions of each step that are sampled."""
        return self.sequences

    def work(self, measures: Sequence[Measure]) -> tuple[WorkArrays, ...]:
        """The counts of each measure, in their order."""
        return tuple(self._work(measure) for measure in measures)

    def _work(self, measure: Measure) -> WorkArrays:
        pairs, reads, tokens = _count(measure, self.prefix, self.new)
        sequences = self.sequences
        return WorkArrays(sequences * pairs, sequences * reads, sequences * tokens)


def decode_contexts(start: Ints, steps: Ints) -> tuple[Ints, Ints]:
    """Two contexts whose mean cost is that of ``steps`` decode steps from ``start`` positions.

    As ``step_shape.growing_contexts``; with one step both are its context.
    """
    middle = start + steps / 2
    spread = np.where(steps < 2, 0.0, _GAUSS * steps)
    centre = np.where(steps < 2, start, middle)
    low, high = (np.maximum(np.rint(centre + sign * spread), 1) for sign in (-1, 1))
    return low.astype(np.int64), high.astype(np.int64)


def _count(measure: Measure, prefix: Ints, new: Ints) -> tuple[Ints, Ints, Ints]:
    """Counts of one sequence.

    Raises:
        TypeError: the measure is of a kind that is not counted here.
    """
    if isinstance(measure, CausalWork):
        return (
            _causal_pairs(prefix, new, measure.window),
            _visible(prefix, new, measure.window),
            new,
        )
    if isinstance(measure, LatentWork):
        decodes = (prefix > 0) & (new <= MOST_ABSORBED_TOKENS)
        here = (decodes if measure.absorbed else ~decodes).astype(np.int64)
        return here * _causal_pairs(prefix, new, None), here * (prefix + new), here * new
    if isinstance(measure, EntryWork):
        return _entries(measure, prefix, new)
    if isinstance(measure, StateWork):
        nothing = np.zeros_like(new)
        return nothing, nothing + 1, new
    raise TypeError(f"{type(measure).__name__} is not counted for many steps at once")


def _causal_pairs(prefix: Ints, new: Ints, window: int | None) -> Ints:
    if window is None:
        return new * prefix + new * (new + 1) // 2
    growing = np.clip(window - prefix, 0, new)
    return growing * prefix + growing * (growing + 1) // 2 + (new - growing) * window


def _visible(prefix: Ints, new: Ints, window: int | None) -> Ints:
    end = prefix + new
    return end if window is None else np.minimum(end, window + new - 1)


def _entries(measure: EntryWork, prefix: Ints, new: Ints) -> tuple[Ints, Ints, Ints]:
    ratio, most, window = measure.ratio, measure.most, measure.window
    end = prefix + new
    pairs = _entries_seen(end, ratio, most) - _entries_seen(prefix, ratio, most)
    reads = np.minimum(end // ratio, pairs)
    if window:
        pairs = pairs + _causal_pairs(prefix, new, window)
        reads = reads + _visible(prefix, new, window)
    return pairs, reads, new


def _entries_seen(positions: Ints, ratio: int, most: int | None) -> Ints:
    """Sum over t = 1 .. positions of min(floor(t / ratio), most)."""
    growing = positions if most is None else np.minimum(positions, most * ratio)
    full, rest = np.divmod(growing, ratio)
    seen = ratio * full * (full - 1) // 2 + full * (rest + 1)
    return seen if most is None else seen + (positions - growing) * most
