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


def compressed_pairs(prefix: int, new: int, ratio: int, most: int | None = None) -> int:
    """Query-entry pairs where ``ratio`` positions make one entry, seen once it is complete.

    The query at position t (from 1) sees floor(t / ratio) entries, of which it picks ``most`` at
    most. Ratio 1 is top-k attention over single positions.
    """
    return _entries_seen(prefix + new, ratio, most) - _entries_seen(prefix, ratio, most)


def _entries_seen(positions: int, ratio: int, most: int | None) -> int:
    """Sum over t = 1 .. positions of min(floor(t / ratio), most)."""
    growing = positions if most is None else min(positions, most * ratio)
    full, rest = divmod(growing, ratio)
    seen = ratio * full * (full - 1) // 2 + full * (rest + 1)
    return seen if most is None else seen + (positions - growing) * most
