"""Vocabularies of real tokenizers, stored here so that they can be compared on the same text.

Encoding is our own and small: the engine's tokenizer is the fast one, and tests compare this one
with it and with tiktoken's ids.
"""

from __future__ import annotations

import hashlib
import lzma
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tokenizers import Regex, pre_tokenizers

from engine.catalog.bpe import Merge, merge_word, replay
from engine.errors import FileFormatError, UnknownName

DATA = Path(__file__).resolve().parent / "data" / "tokenizers"

_LONGEST_KEPT_WORD = 32
_KEPT_WORDS = 20_000


@dataclass(frozen=True, slots=True)
class VocabularySource:
    """What is known of a vocabulary before it is read. ``used_by``: models that have it;
    ``tokens``: ordinary ones, without control tokens."""

    id: str
    name: str
    used_by: str
    first_id: int
    tokens: int
    cut: str
    sha256: str
    source: str
    license: str
    before: str | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a text: its id and the bytes that it stands for."""

    id: int
    bytes: bytes


@dataclass(frozen=True, slots=True)
class Word:
    """A word from single bytes to its tokens, merge by merge; ranks are ids."""

    letters: tuple[Token, ...]
    merges: tuple[Merge, ...]
    tokens: tuple[Token, ...]


class Vocabulary:
    """A byte-level BPE vocabulary with the rule by which it cuts text into words.

    Keeps the words that it has met. Several threads may share it: they keep the same.
    """

    def __init__(self, about: VocabularySource, tokens: bytes) -> None:
        """``tokens`` as the data's own file describes them."""
        self.about = about
        self._spelled: list[bytes] = []
        self._splits = bytearray()
        at = 0
        while at < len(tokens):
            length, split = tokens[at], tokens[at + 1]
            self._spelled.append(tokens[at + 2 : at + 2 + length])
            self._splits.append(split)
            at += 2 + length
        self._ids = {
            token: number for number, token in enumerate(self._spelled, start=about.first_id)
        }
        self._words: dict[str, list[Token]] = {}

    def __len__(self) -> int:
        """Ordinary tokens: control tokens are not stored."""
        return len(self._ids)

    @cached_property
    def _cutter(self) -> pre_tokenizers.PreTokenizer:
        patterns = [pattern for pattern in (self.about.before, self.about.cut) if pattern]
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        )

    def words(self, text: str) -> list[str]:
        """The words of a text, across which nothing is merged."""
        cutter: Any = self._cutter
        cut: list[tuple[str, tuple[int, int]]] = cutter.pre_tokenize_str(text)
        return [word for word, _ in cut]

    def encode(self, text: str) -> list[Token]:
        """The tokens of ordinary text. Bytes without an entry of their own are left out."""
        return [token for word in self.words(text) for token in self._encode_word(word)]

    def _encode_word(self, word: str) -> list[Token]:
        known = self._words.get(word)
        if known is None:
            parts = merge_word(self._known_bytes(word), self.rank)
            known = [Token(self._ids[part], part) for part in parts]
            if len(word) <= _LONGEST_KEPT_WORD and len(self._words) < _KEPT_WORDS:
                self._words[word] = known
        return known

    def replay(self, text: str) -> list[Word]:
        """Each word of a text, merge by merge: for short ones."""
        return [self._replay_word(self._known_bytes(word)) for word in self.words(text)]

    def _replay_word(self, word: bytes) -> Word:
        letters = [bytes([byte]) for byte in word]
        merges, left = replay(letters, self.rank)
        return Word(self._tokens(letters), merges, self._tokens(left))

    def _tokens(self, parts: list[bytes] | tuple[bytes, ...]) -> tuple[Token, ...]:
        return tuple(Token(self._ids[part], part) for part in parts)

    def _known_bytes(self, word: str) -> bytes:
        return bytes(byte for byte in word.encode() if bytes([byte]) in self._ids)

    def rank(self, left: bytes, right: bytes) -> int | None:
        """The rank of a pair: the id of what it makes; None where it is never merged."""
        found = self._ids.get(left + right)
        if found is None:
            return None
        split = self._splits[found - self.about.first_id]
        return found if split in (0, len(left)) else None

    def spell(self, token_id: int) -> bytes:
        """The bytes of a token; none where there is no ordinary token of that id."""
        place = token_id - self.about.first_id
        return self._spelled[place] if 0 <= place < len(self._spelled) else b""

    def id_of(self, token: bytes) -> int | None:
        """The id of a token, None where there is none."""
        return self._ids.get(token)


@cache
def vocabulary_sources() -> Mapping[str, VocabularySource]:
    """All vocabularies that are stored, by id."""
    entries: dict[str, dict[str, Any]] = tomllib.loads(
        (DATA / "tokenizers.toml").read_text("utf-8")
    )
    return {name: VocabularySource(id=name, **entry) for name, entry in entries.items()}


@cache
def vocabulary(name: str) -> Vocabulary:
    """A vocabulary, read once: up to 0.3 s and 30 MB for the largest.

    Raises:
        UnknownName: there is none of that id.
        FileFormatError: the file is not the one that was stored.
    """
    about = vocabulary_sources().get(name)
    if about is None:
        choices = ", ".join(vocabulary_sources())
        raise UnknownName(f"choose one of {choices}", field="tokenizer")
    tokens = lzma.decompress((DATA / f"{name}.xz").read_bytes())
    if hashlib.sha256(tokens).hexdigest() != about.sha256:
        raise FileFormatError("a stored vocabulary is damaged")
    return Vocabulary(about, tokens)
