"""Prompt look-up: what followed the last time that the text had the same end.

The longest end of the text (up to ``max_ngram`` tokens) that occurred before is looked for, and
what came after its latest occurrence is the draft. It costs no computation on the model, and is
right where answers repeat their prompts or themselves: code, quotations, tables. The idea is that
of prompt lookup decoding (A. Saxena 2023) and LLMA (arXiv 2304.04487).
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduling.request import Request
from engine.scheduling.speculation import SpeculationSettings


class NgramDrafter:
    """Keeps an index of each request's text, which grows with it: a look-up scans nothing."""

    def __init__(self) -> None:
        self._indices: dict[str, _NgramIndex] = {}

    def check(self, settings: SpeculationSettings) -> None:
        """Every setting is possible."""

    def propose(self, request: Request) -> Sequence[int]:
        settings = request.speculation
        if settings is None:
            return ()
        index = self._indices.get(request.request_id)
        if index is None:
            index = _NgramIndex(settings.min_ngram, settings.max_ngram)
            self._indices[request.request_id] = index
        index.extend(request.known_slice(len(index), request.num_known_tokens))
        return index.continuation(settings.draft_tokens)

    def release(self, request_id: str) -> None:
        self._indices.pop(request_id, None)


class _NgramIndex:
    """Where each n-gram of a text was followed by what, the last time."""

    def __init__(self, shortest: int, longest: int) -> None:
        self._lengths = range(shortest, longest + 1)
        self._text: list[int] = []
        self._followed_at: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._text)

    def extend(self, tokens: Sequence[int]) -> None:
        text = self._text
        for token in tokens:
            # Now it is known what follows the n-grams that end here.
            for ngram in self._ends():
                self._followed_at[ngram] = len(text)
            text.append(token)

    def continuation(self, count: int) -> list[int]:
        """Tokens that followed the longest known end; none if even the shortest is new.

        A text that repeats itself up to its end is taken to go on so: where the copy reaches the
        end of the text, it goes on reading what it has written.
        """
        found = next(
            (at for ngram in reversed(self._ends()) if (at := self._followed_at.get(ngram))), None
        )
        if found is None:
            return []
        tokens: list[int] = []
        for place in range(found, found + count):
            beyond = place - len(self._text)
            tokens.append(self._text[place] if beyond < 0 else tokens[beyond])
        return tokens

    def _ends(self) -> list[tuple[int, ...]]:
        """The n-grams that the text ends with, shortest first."""
        text = self._text
        return [tuple(text[-length:]) for length in self._lengths if length <= len(text)]
