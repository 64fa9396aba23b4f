"""Text to token ids and back. Text that a person typed never becomes a control token."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import tokenizers

from engine.catalog.pieces import visible_piece
from engine.errors import TemplateError, UnsupportedModel
from engine.inference.byte_level import BYTE_LEVEL_ALPHABET
from engine.inference.chat_template import ChatMessage
from engine.inference.control_tokens import ControlTokens, shown
from engine.inference.template_process import Renderer, template_renderer
from engine.inference.word_merges import WordMerges
from engine.refusals import refused

# Measured on one core with the 49,152-token vocabulary: every text of this length, the worst of
# 20 kinds of runs included, is encoded in less than 60 ms, so a prompt cannot hold up the others.
MAX_PROMPT_CHARS = 32_768
MAX_MESSAGES = 256
CHAT_ROLES = ("system", "user", "assistant")
_BYTE_ORDER_MARK = "\ufeff"


def strip_bom(text: str) -> tuple[str, bool]:
    """The text without one leading byte order mark, and whether there was one (to be told)."""
    if text.startswith(_BYTE_ORDER_MARK):
        return text[1:], True
    return text, False


class Spelling(StrEnum):
    """How a vocabulary writes bytes. ``BYTE_LEVEL``: each byte is one printable character, as in
    GPT-2. ``SPACE_MARK``: plain text with ▁ for a space, and <0xE4> for a lone byte."""

    BYTE_LEVEL = "byte_level"
    SPACE_MARK = "space_mark"


_LONE_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """What a file says beside the vocabulary itself.

    ``strip_leading_spaces``: how many spaces at the very start of a decoded text are not the
    text's own. ``special_tokens``: what a chat template may use by name, such as ``bos_token``.
    ``unused_ids``: ids with an entry that no text has. ``shown_control_ids``: control tokens that
    decoding shows, such as the tags around a model's reasoning.
    """

    spelling: Spelling = Spelling.BYTE_LEVEL
    strip_leading_spaces: int = 0
    bos_token_id: int | None = None
    special_tokens: Mapping[str, str] | None = None
    chat_template: str | None = None
    unused_ids: frozenset[int] = frozenset()
    shown_control_ids: frozenset[int] = frozenset()


class Tokenizer:
    """A trained tokenizer. Safe to use from several threads.

    ``control_ids`` never come out of ordinary text; ``special_ids`` are those of them that decoding
    leaves out. Raises ``UnsupportedModel`` on construction where ordinary text could become a
    control token.
    """

    def __init__(self, backend: tokenizers.Tokenizer, settings: TokenizerSettings) -> None:
        self._backend = backend
        self._settings = settings
        backend.no_truncation()
        backend.no_padding()
        # From here on the backend reads <|im_end|> as six ordinary characters and two words.
        backend.encode_special_tokens = True
        self._control = ControlTokens(backend)
        self.control_ids = self._control.ids
        self.special_ids = self.control_ids - settings.shown_control_ids
        ids = backend.get_vocab(with_added_tokens=True).values()
        self._known_ids = frozenset(ids) - settings.unused_ids
        self.vocab_size = max(ids, default=-1) + 1
        self._bytes: dict[int, bytes] = {}
        self._refuse_reachable_controls()

    def _refuse_reachable_controls(self) -> None:
        for text, number, token in self._control:
            if token.single_word or not text or number in self.encode(text):
                raise UnsupportedModel("the tokenizer makes control tokens out of ordinary text")

    # ── text → ids ───────────────────────────────────────────────────────────────────────────

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text: no control tokens in it, none added before or after.

        ``decode(encode(text)) == text`` for a byte-level vocabulary, but for the characters that
        ``unspellable`` names; where a vocabulary marks words by a space, the first space of a text
        may be that mark. Not capped: see ``encode_prompt`` for text from outside. Raises
        ``InvalidRequest`` for lone surrogates, which are not text.
        """
        try:
            return self._backend.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise refused("lone_surrogates", field="prompt") from error

    def unspellable(self, text: str) -> frozenset[str]:
        """Characters of ``text`` that the vocabulary has no bytes for, so they are left out.

        SmolLM2's, for one, has no token for six control bytes and for U+40000 to U+BFFFF.
        """
        missing = self._missing_bytes
        if not missing:
            return frozenset()
        return frozenset(
            character
            for character in set(text)
            if missing.intersection(character.encode("utf-8", "surrogatepass"))
            and (self._settings.spelling is Spelling.BYTE_LEVEL or not self._has(character))
        )

    @cached_property
    def _missing_bytes(self) -> frozenset[int]:
        if self._settings.spelling is Spelling.BYTE_LEVEL:
            spelled = {byte: letter for letter, byte in BYTE_LEVEL_ALPHABET.items()}
        else:
            spelled = {byte: f"<0x{byte:02X}>" for byte in range(256)}
        return frozenset(byte for byte, token in spelled.items() if not self._has(token))

    def _has(self, token: str) -> bool:
        return self._backend.token_to_id(token) is not None

    def encode_prompt(self, text: str, *, add_begin: bool = True) -> list[int]:
        """Ids of a plain prompt: the begin token where the model wants one (``add_begin`` False
        leaves it out), then the text.

        Raises ``InvalidRequest`` for more than ``MAX_PROMPT_CHARS`` characters, lone surrogates,
        or a prompt that gives no token at all.
        """
        _check_length(len(text), "prompt")
        begin = self._settings.bos_token_id if add_begin else None
        ids = [*(() if begin is None else (begin,)), *self.encode(text)]
        if not ids:
            raise refused("empty_prompt", field="prompt")
        return ids

    def encode_chat(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Ids of a conversation in the model's own chat template.

        ``messages`` have ``role`` (system, user, assistant) and ``content``. Only markers that the
        template writes become control tokens; the same characters in a content stay text.

        Raises:
            InvalidRequest: no messages, too many, too long, another role; field ``messages``.
            TemplateError: there is no template, or it cannot take these messages.
        """
        renderer = self._renderer
        if renderer is None:
            raise refused("no_chat_template", kind=TemplateError)
        _check_messages(messages)
        contents = "".join(message["content"] for message in messages)
        stand_ins = self._control.stand_ins(contents, self._settings.chat_template or "")
        rendered = renderer.render(
            [
                {"role": m["role"], "content": self._control.hide(m["content"], stand_ins)}
                for m in messages
            ],
            self._settings.special_tokens or {},
            add_generation_prompt=add_generation_prompt,
        )
        ids: list[int] = []
        for text, marker in self._control.split(rendered):
            if text:
                ids += self._encode_part(shown(text, stand_ins), first=not ids)
            if marker is not None:
                ids.append(marker)
        return ids

    def _encode_part(self, text: str, *, first: bool) -> list[int]:
        backend = self._backend if first else self._continuation
        try:
            return backend.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise refused("lone_surrogates", field="messages") from error

    @cached_property
    def _continuation(self) -> tokenizers.Tokenizer:
        """The same tokenizer for text that is not the first: some put a space mark before the
        first part only, and a part after a marker must not get another."""
        scheme: Any = getattr(self._backend.pre_tokenizer, "prepend_scheme", None)
        if scheme != "first":
            return self._backend
        copy = tokenizers.Tokenizer.from_str(self._backend.to_str())
        copy.encode_special_tokens = True
        pre_tokenizer: Any = copy.pre_tokenizer
        pre_tokenizer.prepend_scheme = "never"
        copy.pre_tokenizer = pre_tokenizer
        return copy

    @cached_property
    def _renderer(self) -> Renderer | None:
        source = self._settings.chat_template
        return None if source is None else template_renderer(source)

    @property
    def has_chat_template(self) -> bool:
        """Whether ``encode_chat`` can work at all."""
        return self._settings.chat_template is not None

    @property
    def bos_token_id(self) -> int | None:
        """The token that ``encode_prompt`` puts first, if there is one."""
        return self._settings.bos_token_id

    @cached_property
    def word_merges(self) -> WordMerges:
        """How words are cut and merged. Raises ``InvalidRequest`` where it is no byte-level BPE."""
        return WordMerges(self._backend)

    # ── ids → text ───────────────────────────────────────────────────────────────────────────

    @property
    def strip_leading_spaces(self) -> int:
        """Spaces at the start of a decoded text that the tokenizer put there itself."""
        return self._settings.strip_leading_spaces

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes that one token stands for; they need not be whole characters.

        Empty for an id above the vocabulary or in a hole of it.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def _spell(self, token_id: int) -> bytes:
        token = self._backend.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None
        if token is None:
            return b""
        if self._settings.spelling is Spelling.BYTE_LEVEL:
            values = [BYTE_LEVEL_ALPHABET.get(character) for character in token]
            spelled = [value for value in values if value is not None]
            return bytes(spelled) if len(spelled) == len(values) else token.encode("utf-8")
        lone = _LONE_BYTE.fullmatch(token)
        return bytes([int(lone[1], 16)]) if lone else token.replace("▁", " ").encode("utf-8")

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of all ids in one go; U+FFFD stands where bytes are not UTF-8.

        ``skip_special`` leaves control tokens out.
        """
        hidden = self.special_ids if skip_special else frozenset[int]()
        joined = b"".join(self.token_bytes(token) for token in ids if token not in hidden)
        text = joined.decode("utf-8", "replace")
        return strip_spaces(text, self.strip_leading_spaces)

    def piece(self, token_id: int) -> str:
        """What to show for one token alone: its text, with bytes that are no whole character and
        control characters as ``<E4>``. Spaces, tabs and line ends stay. An id that the tokenizer
        does not know is shown as ``<id 49999>``.
        """
        content = self.token_bytes(token_id)
        if not content:
            return f"<id {token_id}>"
        return visible_piece(content)

    # ── which ids there are ──────────────────────────────────────────────────────────────────

    def unknown_ids(self, rows: int) -> tuple[int, ...]:
        """Of the ids 0 to ``rows`` - 1, those no text has: padding above the vocabulary and holes
        in it. A model may give them a score; sampling must not choose them."""
        return tuple(token for token in range(rows) if token not in self._known_ids)


def strip_spaces(text: str, count: int) -> str:
    """``text`` without up to ``count`` leading spaces."""
    leading = len(text) - len(text.lstrip(" ")) if count else 0
    return text[min(leading, count) :]


def _check_length(length: int, field: str) -> None:
    if length > MAX_PROMPT_CHARS:
        raise refused("text_too_long", field=field, high=MAX_PROMPT_CHARS)


def _check_messages(messages: Sequence[ChatMessage]) -> None:
    if not 1 <= len(messages) <= MAX_MESSAGES:
        raise refused("message_count", field="messages", high=MAX_MESSAGES)
    for message in messages:
        if message["role"] not in CHAT_ROLES:
            raise refused("roles", field="messages", choices=", ".join(CHAT_ROLES))
    _check_length(sum(len(message["content"]) for message in messages), "messages")
