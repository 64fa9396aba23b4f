"""Text to tokens and back, and how a word is merged: questions to the tokenizer alone. Torch-free.

Answered without any of the model's weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from engine.catalog.bpe import replay
from engine.errors import InvalidRequest
from engine.inference.detokenizer import StreamDetokenizer
from engine.inference.probes.arguments import (
    TEXT_FIELDS,
    Arguments,
    flag,
    integers,
    read_text,
    text,
)
from engine.inference.probes.limits import MAX_DECODED_IDS, MAX_MERGED_CHARS
from engine.inference.probes.text_documents import (
    MergedWord,
    Merges,
    MergeStep,
    TextToken,
    TextTokens,
)
from engine.inference.tokenizer import Tokenizer
from engine.refusals import refused

_Answer = Callable[["TextDesk", Arguments], TextTokens | Merges]


class TextDesk:
    """Answers questions about one tokenizer. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def answer(self, kind: str, arguments: Arguments) -> dict[str, object]:
        """One question's answer, JSON-able. ``kind`` is one of ``TEXT_KINDS``.

        Raises:
            InvalidRequest: an argument is missing, unknown or out of range; names the field.
            TemplateError: the chat template cannot take these messages.
        """
        make, names = TEXT_KINDS[kind]
        check_names(kind, arguments, names)
        return make(self, arguments).to_dict()

    def tokenize(self, arguments: Arguments) -> TextTokens:
        """The tokens of a text or of messages."""
        start = time.perf_counter()
        ids = read_text(arguments, self._tokenizer)
        seconds = time.perf_counter() - start
        given = arguments.get("text") or "".join(
            turn["content"] for turn in arguments.get("messages", ())
        )
        missing = tuple(sorted(self._tokenizer.unspellable(given)))
        return self._document(ids, seconds, missing=missing)

    def detokenize(self, arguments: Arguments) -> TextTokens:
        """The text of some ids."""
        ids = integers(arguments, "ids")
        if not 1 <= len(ids) <= MAX_DECODED_IDS:
            raise refused("token_count", field="ids", high=MAX_DECODED_IDS)
        last = self._tokenizer.vocab_size - 1
        if any(not 0 <= token <= last for token in ids):
            raise refused("token_ids", field="ids", high=last)
        skip = flag(arguments, "skip_special", False)
        start = time.perf_counter()
        self._tokenizer.decode(ids, skip)
        return self._document(ids, time.perf_counter() - start, skip_special=skip)

    def merges(self, arguments: Arguments) -> Merges:
        """How each word of a text becomes tokens, merge by merge.

        Refused where the slow way does not end in the tokenizer's own ids: a tokenizer with a rule
        beside its merges.
        """
        given = text(arguments, "text")
        if not 1 <= len(given) <= MAX_MERGED_CHARS:
            raise refused("text_too_long", field="text", high=MAX_MERGED_CHARS)
        known = self._tokenizer.word_merges
        words = [self._merged(word, known.ranks) for word in known.words(given)]
        found = [token.id for word in words for token in word.tokens]
        if found != self._tokenizer.encode(given):
            raise refused("no_byte_merges", field="text")
        return Merges(given, len(known.ranks), tuple(words))

    def _merged(self, word: bytes, ranks: Mapping[tuple[bytes, bytes], int]) -> MergedWord:
        letters = [bytes([byte]) for byte in word if bytes([byte]) in self._ids]
        merges, left = replay(letters, lambda *pair: ranks.get(pair))
        return MergedWord(
            start=tuple(self._token(self._ids[part]) for part in letters),
            merges=tuple(
                MergeStep(step.at, step.rank, self._token(self._ids[step.left + step.right]))
                for step in merges
            ),
            tokens=tuple(self._token(self._ids[part]) for part in left),
        )

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """Ids of ordinary tokens by their bytes."""
        tokenizer = self._tokenizer
        ordinary = (i for i in range(tokenizer.vocab_size) if i not in tokenizer.control_ids)
        return {tokenizer.token_bytes(token): token for token in ordinary}

    def _document(
        self,
        ids: Sequence[int],
        seconds: float,
        *,
        missing: tuple[str, ...] = (),
        skip_special: bool = False,
    ) -> TextTokens:
        stream = StreamDetokenizer(self._tokenizer, skip_special=skip_special)
        tokens = tuple(self._token(token, stream.push(token)) for token in ids)
        tail = stream.flush()
        whole = self._tokenizer.decode(ids, skip_special)
        return TextTokens(
            text=whole,
            characters=len(whole),
            utf8_bytes=len(whole.encode()),
            tokens=tokens,
            tail=tail,
            unspellable=missing,
            milliseconds=seconds * 1e3,
        )

    def _token(self, token_id: int, certain: str = "") -> TextToken:
        tokenizer = self._tokenizer
        return TextToken(
            id=token_id,
            piece=tokenizer.piece(token_id),
            bytes=tokenizer.token_bytes(token_id).hex(),
            special=token_id in tokenizer.control_ids,
            text=certain,
        )


def check_names(kind: str, arguments: Arguments, names: Sequence[str]) -> None:
    """Raises ``InvalidRequest`` where an argument is none of ``names``."""
    for name in arguments.keys() - names:
        raise InvalidRequest(f"{kind} takes {', '.join(names)} only", field=name[:40])


TEXT_KINDS: dict[str, tuple[_Answer, tuple[str, ...]]] = {
    "tokenize": (TextDesk.tokenize, (*TEXT_FIELDS, "add_special", "add_generation_prompt")),
    "detokenize": (TextDesk.detokenize, ("ids", "skip_special")),
    "merges": (TextDesk.merges, ("text",)),
}
