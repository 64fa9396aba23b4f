"""Prompts of a wanted length that no cache has seen: each begins with words of its own.

How many tokens a word is, and what a chat template adds, is the server's affair: its own count of
two prompts gives both, as tokens = fixed + rate · words.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Self

# Short, frequent words: one token each, with the space before them, in most vocabularies.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work number night "
    "point home water room mother area money story fact month lot right study book eye job word "
    "business side kind head house service friend father power hour game line end law car city "
    "name team minute idea body back face level door art war history party result change morning "
    "reason research moment air teacher force education"
)
_WORDS = _TEXT.split()
_ASK = "Go on with this list of words, without an end:"


@dataclass(frozen=True, slots=True)
class LengthRule:
    """Prompt tokens of a prompt of so many words: ``fixed + rate · words``.

    ``counted`` says whether a server's counts gave it; else a word is taken for one token.
    """

    fixed: float = 0.0
    rate: float = 1.0
    counted: bool = False

    @classmethod
    def through(cls, first: tuple[int, int], second: tuple[int, int]) -> Self:
        """The rule of two (words, tokens); two that make no sense give a token a word."""
        (words, tokens), (more_words, more_tokens) = first, second
        rate = (more_tokens - tokens) / (more_words - words)
        if rate <= 0:
            return cls()
        return cls(tokens - rate * words, rate, counted=True)

    def words(self, tokens: int) -> int:
        """Words of a prompt of about that many tokens, at least one."""
        return max(1, round((tokens - self.fixed) / self.rate))


class PromptMaker:
    """Makes prompts of random words. The first words tell them apart, so that no prefix is shared
    beyond a chat template's own; with ``same``, all of one length are the same prompt."""

    def __init__(self, seed: int, *, same: bool = False) -> None:
        self._random = random.Random(seed)
        self._same = same
        self._kept: dict[int, str] = {}

    def prompt(self, words: int) -> str:
        """A prompt of that many random words, and the question behind them."""
        if not self._same:
            return self._new(words)
        if words not in self._kept:
            self._kept[words] = self._new(words)
        return self._kept[words]

    def _new(self, words: int) -> str:
        return f"{' '.join(self._random.choices(_WORDS, k=words))}\n{_ASK}"
