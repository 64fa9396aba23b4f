"""Token ids to text as they come, without ever showing half a character."""

from __future__ import annotations

import codecs

from engine.inference.tokenizer import Tokenizer, strip_spaces


class StreamDetokenizer:
    """Decodes one answer token by token; each push costs as much as its own token.

    Bytes of an incomplete character are kept until the rest comes. What ``push`` and ``flush``
    return, joined, is exactly ``tokenizer.decode`` of all ids: U+FFFD appears where the bytes are
    not UTF-8, and nowhere else.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special else frozenset[int]()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._spaces_to_strip = tokenizer.strip_leading_spaces

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""
        if token_id in self._hidden:
            return ""
        return self._emit(self._utf8.decode(self._tokenizer.token_bytes(token_id)))

    def flush(self) -> str:
        """At the end: U+FFFD for a character that never was completed, else nothing."""
        return self._emit(self._utf8.decode(b"", final=True))

    def _emit(self, text: str) -> str:
        if self._spaces_to_strip and text:
            stripped = strip_spaces(text, self._spaces_to_strip)
            removed = len(text) - len(stripped)
            self._spaces_to_strip = 0 if stripped else self._spaces_to_strip - removed
            return stripped
        return text
