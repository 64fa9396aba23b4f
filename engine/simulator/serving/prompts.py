"""Prompts as the prefix cache sees them: ranges of made-up token ids, none of which is stored."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import overload

ID_SPACE = 2**40
"""Ids of one range lie below the next multiple of this: no two ranges share an id by chance."""


class PromptTokens(Sequence[int]):
    """The ids of a prompt: those of its parts, one after the other.

    Prompts with the same first parts have the same first ids. The last id belongs to this prompt
    alone: what follows a prompt is drawn, so that two equal prompts still get answers of their own,
    whose blocks must not be taken for one another's.
    """

    __slots__ = ("_ends", "_length", "_parts")

    def __init__(self, parts: Sequence[range], own_id: int) -> None:
        """``parts`` hold one id at least in all; ``own_id`` replaces the last one."""
        last = parts[-1]
        own = range(own_id, own_id + 1)
        shared = (*parts[:-1], last[:-1]) if len(last) > 1 else tuple(parts[:-1])
        self._parts = (*shared, own)
        self._ends = tuple(accumulate(map(len, self._parts)))
        self._length = self._ends[-1]

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, int):
            place = range(self._length)[index]
            part = bisect_right(self._ends, place)
            return self._parts[part][place - self._ends[part]]
        start, stop, step = index.indices(self._length)
        ids = self._between(start, stop)
        return ids if step == 1 else ids[::step]

    def _between(self, start: int, stop: int) -> Sequence[int]:
        part = bisect_right(self._ends, start)
        pieces: list[Sequence[int]] = []
        while start < stop:
            end = self._ends[part]
            ids = self._parts[part]
            first = len(ids) - (end - start)
            pieces.append(ids[first : first + min(stop, end) - start])
            start = end
            part += 1
        return pieces[0] if len(pieces) == 1 else [i for piece in pieces for i in piece]
