"""Byte-pair encoding, merge by merge (Sennrich et al., arXiv 1508.07909; on bytes: GPT-2).

The slow way, one merge after the other, for whoever wants to see them. A tokenizer that runs finds
the same merges with a heap; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Rank = Callable[[bytes, bytes], int | None]
"""The rank of a pair of neighbours, low first; None where they are never merged."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The part at index ``at`` and the one after it become one. ``rank``: of that pair."""

    at: int
    rank: int
    left: bytes
    right: bytes


def replay(parts: Sequence[bytes], rank: Rank) -> tuple[tuple[Merge, ...], tuple[bytes, ...]]:
    """The merges of one word in the order in which they happen, and the parts that are left.

    Each time the pair of the lowest rank is merged, the leftmost where several have it. Takes
    len(parts)² looks at ranks, so words have to be short.
    """
    left = list(parts)
    merges: list[Merge] = []
    while True:
        ranked = [
            (found, at)
            for at in range(len(left) - 1)
            if (found := rank(*left[at : at + 2])) is not None
        ]
        if not ranked:
            return tuple(merges), tuple(left)
        lowest, at = min(ranked)
        merges.append(Merge(at, lowest, left[at], left[at + 1]))
        left[at : at + 2] = [left[at] + left[at + 1]]
