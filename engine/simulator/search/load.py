"""A service under Poisson load in closed form, for many deployments at once: to rank them.

One deployment answers requests at a rate; each runs its prompt, which stops the others' decoding,
and then takes its tokens with all that are under way. Little's law gives the batch N: it is what
the rate, the output and the time of a token at that batch make it. Waiting for the prompt of
another is Pollaczek and Khinchine's mean for services of equal length. Percentiles, bursts and
full caches are not in it: a serving run confirms what it ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.simulator.search.uniform import Floats

_ROUNDS = 50
_MOST_BUSY = 0.95
"""Part of the time that prompts may take: beyond it waiting grows without end."""


@dataclass(frozen=True, slots=True)
class ServiceCurves:
    """Times [s] of deployments, one a row.

    ``steps`` [rows, sizes] are decode steps at the batch ``sizes`` [sizes], from 1 up;
    ``prefill`` is the time of one prompt, ``first`` what a first token waits for the host,
    ``most`` the requests that a deployment holds at once.
    """

    sizes: Floats
    steps: Floats
    prefill: Floats
    first: Floats
    most: Floats
    output: int

    def step(self, batch: Floats) -> Floats:
        """Decode steps at a batch for each row, straight between the sizes."""
        batch = np.clip(batch, self.sizes[0], self.sizes[-1])
        place = np.clip(np.searchsorted(self.sizes, batch, side="right"), 1, len(self.sizes) - 1)
        low, high = self.sizes[place - 1], self.sizes[place]
        rows = np.arange(len(self.steps)).reshape(-1, *([1] * (batch.ndim - 1)))
        share = (batch - low) / (high - low)
        before, after = self.steps[rows, place - 1], self.steps[rows, place]
        return before + share * (after - before)


class Load(NamedTuple):
    """Mean batch, TTFT and ITL [s] of each row; ``stable`` where it answers what arrives."""

    batch: Floats
    ttft: Floats
    itl: Floats
    stable: NDArray[np.bool_]


def under_load(curves: ServiceCurves, rate: Floats) -> Load:
    """Each row's steady state at its requests/s; ``rate`` is [rows, …]."""
    shape = (len(curves.steps), *([1] * (rate.ndim - 1)))
    prefill, first, most = (
        column.reshape(shape) for column in (curves.prefill, curves.first, curves.most)
    )
    busy = rate * prefill
    calm = np.minimum(busy, _MOST_BUSY)
    low, high = np.zeros_like(rate), np.broadcast_to(most, rate.shape).copy()
    for _ in range(_ROUNDS):
        batch = (low + high) / 2
        more = rate * curves.output * curves.step(batch) / (1 - calm) > batch
        low, high = np.where(more, batch, low), np.where(more, high, batch)
    itl = curves.step(high) / (1 - calm)
    company = np.clip(high - 1, 0, 1)
    waiting = calm * prefill / (2 * (1 - calm)) + company * itl / 2
    stable = (busy <= _MOST_BUSY) & (high < most * (1 - 1e-6))
    return Load(high, waiting + np.maximum(prefill, company * itl) + first, itl, stable)
