"""Byte-pair encoding (Sennrich et al., arXiv 1508.07909; on bytes: GPT-2), in three ways.

``replay`` is the slow way, one merge after the other, for whoever wants to see them; ``merge_word``
finds the same parts with a heap; ``train`` learns merges from a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

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
            if (found := rank(left[at], left[at + 1])) is not None
        ]
        if not ranked:
            return tuple(merges), tuple(left)
        lowest, at = min(ranked)
        merges.append(Merge(at, lowest, left[at], left[at + 1]))
        left[at : at + 2] = [left[at] + left[at + 1]]


def merge_word(word: bytes, rank: Rank) -> list[bytes]:
    """The parts of one word, by a heap: takes len(word) times the logarithm of it."""
    parts = [word[at : at + 1] for at in range(len(word))]
    before, after = list(range(-1, len(word) - 1)), list(range(1, len(word) + 1))
    heap: list[tuple[int, int, int]] = []

    def offer(at: int) -> None:
        """Note the pair that begins at ``at``, if it may be merged."""
        if at >= 0 and after[at] < len(word):
            left, right = parts[at], parts[after[at]]
            found = rank(left, right)
            if found is not None:
                heappush(heap, (found, at, len(left) + len(right)))

    for at in range(len(word)):
        offer(at)
    while heap:
        _, at, length = heappop(heap)
        other = after[at]
        # Parts only grow: a pair of another length is not the one that was noted.
        if not parts[at] or other >= len(word) or len(parts[at]) + len(parts[other]) != length:
            continue
        parts[at], parts[other] = parts[at] + parts[other], b""
        after[at] = after[other]
        if after[at] < len(word):
            before[after[at]] = at
        offer(before[at])
        offer(at)
    return [part for part in parts if part]


@dataclass(frozen=True, slots=True)
class LearnedMerge:
    """The pair that stood side by side most often, and how often; ``token`` is its new number."""

    left: int
    right: int
    count: int
    token: int


@dataclass(frozen=True, slots=True)
class Training:
    """What was learned. ``letters``: the tokens to begin with, by number; each merge adds one.
    ``words``: the text as tokens once all merges have been made."""

    letters: tuple[str, ...]
    merges: tuple[LearnedMerge, ...]
    words: tuple[tuple[int, ...], ...]

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text of every token, by number."""
        pieces = list(self.letters)
        for merge in self.merges:
            pieces.append(pieces[merge.left] + pieces[merge.right])
        return tuple(pieces)


def train(words: Sequence[str], max_merges: int) -> Training:
    """Learn up to ``max_merges`` merges from a text that has been cut into words.

    Begins with the characters, as the paper does, and merges the most frequent pair, of several
    the one that comes first in the text; ends early where no pair stands there twice. Characters
    and not bytes, so that every step can be read.
    """
    letters = tuple(dict.fromkeys(letter for word in words for letter in word))
    numbers = {letter: number for number, letter in enumerate(letters)}
    cut = [[numbers[letter] for letter in word] for word in words]
    merges: list[LearnedMerge] = []
    while len(merges) < max_merges:
        # Counted anew each time: plain to read, and the texts are short.
        counts = Counter(pair for word in cut for pair in _pairs(word))
        if not counts:
            break
        (left, right), count = max(counts.items(), key=lambda item: item[1])
        if count < 2:
            break
        token = len(letters) + len(merges)
        merges.append(LearnedMerge(left, right, count, token))
        cut = [_merged(word, left, right, token) for word in cut]
    return Training(letters, tuple(merges), tuple(map(tuple, cut)))


def _pairs(word: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbours, without those that overlap: aaa holds aa once."""
    pairs: list[tuple[int, int]] = []
    overlaps = False
    for at, pair in enumerate(pairwise(word)):
        overlaps = at > 0 and not overlaps and pair == (word[at - 1], word[at])
        if not overlaps:
            pairs.append(pair)
    return pairs


def _merged(word: Sequence[int], left: int, right: int, token: int) -> list[int]:
    merged: list[int] = []
    at = 0
    while at < len(word):
        if tuple(word[at : at + 2]) == (left, right):
            merged.append(token)
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return merged
