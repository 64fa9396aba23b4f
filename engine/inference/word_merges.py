"""How a byte-level BPE tokenizer cuts text into words, and the rank of each of its merges."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import tokenizers

from engine.inference.byte_level import BYTE_LEVEL_ALPHABET
from engine.refusals import refused


class WordMerges:
    """Read from the tokenizer itself. Raises ``InvalidRequest`` (field "text") on construction
    where it is no byte-level BPE: then there are no merges of bytes to show."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        stored: dict[str, Any] = json.loads(backend.to_str())["model"]
        if stored["type"] != "BPE":
            raise refused("no_byte_merges", field="text")
        self._backend = backend
        self._pairs: list[list[str]] = stored["merges"]

    @cached_property
    def ranks(self) -> dict[tuple[bytes, bytes], int]:
        """Of each pair of neighbours that is ever merged: 0 for what was merged first when the
        tokenizer was trained."""
        return {
            (_as_bytes(left), _as_bytes(right)): rank
            for rank, (left, right) in enumerate(self._pairs)
        }

    def words(self, text: str) -> list[bytes]:
        """The words of a text, within which pairs are merged and never across."""
        backend: Any = self._backend
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        if backend.pre_tokenizer is None:
            return [_as_bytes(text)]
        cut: list[tuple[str, tuple[int, int]]] = backend.pre_tokenizer.pre_tokenize_str(text)
        return [_as_bytes(word) for word, _ in cut]


def _as_bytes(letters: str) -> bytes:
    try:
        return bytes(BYTE_LEVEL_ALPHABET[letter] for letter in letters)
    except KeyError as error:
        raise refused("no_byte_merges", field="text") from error
