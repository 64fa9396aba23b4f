"""Counts of causal attention over a cached prefix, in closed form.

Legend: P positions in the cache already, S positions computed in this step, W the window.
"""

from __future__ import annotations


def causal_pairs(prefix: int, new: int, window: int | None = None) -> int:
    """Query-key pairs of one sequence and head: each new position sees itself and its past.

    S·P + S(S+1)/2 without a window; with one, no query sees more than W positions.
    """
    if window is None or prefix + new <= window:
        return new * prefix + new * (new + 1) // 2
    growing = max(window - prefix, 0)
    return growing * prefix + growing * (growing + 1) // 2 + (new - growing) * window


def visible_positions(prefix: int, new: int, window: int | None = None) -> int:
    """Distinct positions whose K and V the new queries read together.

    P+S without a window; with one, the oldest query sees W and the others S-1 further ones.
    """
    if window is None:
        return prefix + new
    return min(prefix + new, window + new - 1)
