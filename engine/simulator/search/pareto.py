"""The points that no other point beats in both of two things."""

from __future__ import annotations

import numpy as np

from engine.simulator.search.uniform import Floats


def pareto_front(cost: Floats, gain: Floats) -> list[int]:
    """Places of the points with which no other has both a lower cost and as much gain, or the same
    cost and more gain; by rising cost."""
    order = np.lexsort((-gain, cost))
    best = -np.inf
    front: list[int] = []
    for place in order.tolist():
        if gain[place] > best:
            best = float(gain[place])
            front.append(place)
    return front
