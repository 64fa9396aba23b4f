"""Keeps a template's own markers apart from the same characters typed by a person."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import tokenizers

# One character for each control token that a person typed, from a plane for private use.
_STAND_INS = range(0xF0000, 0xFFFFE)


class ControlTokens:
    """The control tokens of a tokenizer: ids that only a chat template may write.

    The way of a conversation: ``hide`` the markers in what people typed, render the template,
    ``split`` the result at the markers that are left, and put back the hidden ones (``shown``) in
    the parts between, which are encoded as ordinary text.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        added = backend.get_added_tokens_decoder()
        self._tokens = {token.content: (i, token) for i, token in added.items() if token.special}
        self.ids = frozenset(number for number, _ in self._tokens.values())
        # The longest at the leftmost place, as the library itself matches.
        texts = sorted(self._tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts)) or r"(?!)")

    def __iter__(self) -> Iterator[tuple[str, int, tokenizers.AddedToken]]:
        """Text, id and flags of each."""
        return ((text, number, token) for text, (number, token) in self._tokens.items())

    def stand_ins(self, contents: str, template: str) -> dict[str, str]:
        """For each control token in ``contents``, a character that is in neither text."""
        typed = [text for text in self._tokens if text in contents]
        if not typed:
            return {}
        taken = {*contents, *template}
        free = (chr(code) for code in _STAND_INS if chr(code) not in taken)
        return dict(zip(typed, free, strict=False))

    def hide(self, content: str, stand_ins: Mapping[str, str]) -> str:
        """``content`` with its stand-in in place of each control token."""
        if not stand_ins:
            return content
        return self._pattern.sub(lambda match: stand_ins[match[0]], content)

    def split(self, rendered: str) -> Iterator[tuple[str, int | None]]:
        """Ordinary text, perhaps empty, and the marker after it; None after the last."""
        position, strip_left = 0, False
        for match in self._pattern.finditer(rendered):
            number, token = self._tokens[match[0]]
            text = rendered[position : match.start()]
            text = text.lstrip() if strip_left else text
            yield (text.rstrip() if token.lstrip else text), number
            position, strip_left = match.end(), token.rstrip
        rest = rendered[position:]
        yield (rest.lstrip() if strip_left else rest), None


def shown(text: str, stand_ins: Mapping[str, str]) -> str:
    """The text with the control tokens that people typed back in their places."""
    return text.translate({ord(character): typed for typed, character in stand_ins.items()})
