"""What the tokenizer answers, as plain data that becomes JSON. Torch-free; see ``documents``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engine.inference.probes.documents import Part, ProbeDocument


@dataclass(frozen=True, slots=True)
class TextToken(Part):
    """A token of a text.

    ``piece``: what to show for it alone, with bytes that are no whole character as ``<E4>``.
    ``bytes``: those it stands for, as hexadecimal digits. ``special``: it is a control token.
    ``text``: what is certain of the text with this token and was not before; empty while a
    character is incomplete.
    """

    id: int
    piece: str
    bytes: str
    special: bool
    text: str


@dataclass(frozen=True, slots=True)
class TextTokens(ProbeDocument):
    """A text and its tokens, in either direction.

    The texts of ``tokens`` and ``tail`` (U+FFFD where the last character stays incomplete) make up
    ``text``. ``unspellable``: characters that were given and that the vocabulary has no bytes for,
    so they were left out. ``milliseconds``: what encoding or decoding took.
    """

    kind: ClassVar[str] = "tokens"
    text: str
    characters: int
    utf8_bytes: int
    tokens: tuple[TextToken, ...]
    tail: str
    unspellable: tuple[str, ...]
    milliseconds: float


@dataclass(frozen=True, slots=True)
class MergeStep(Part):
    """The part at index ``at`` and the one after it become ``token``. ``rank``: of the pair, from
    0: it was the pair merged at that place when the tokenizer was trained."""

    at: int
    rank: int
    token: TextToken


@dataclass(frozen=True, slots=True)
class MergedWord(Part):
    """A word (what the tokenizer never merges across) from single bytes to its tokens."""

    start: tuple[TextToken, ...]
    merges: tuple[MergeStep, ...]
    tokens: tuple[TextToken, ...]


@dataclass(frozen=True, slots=True)
class Merges(ProbeDocument):
    """How a text becomes tokens, word by word. ``num_merges``: how many the tokenizer knows."""

    kind: ClassVar[str] = "merges"
    text: str
    num_merges: int
    words: tuple[MergedWord, ...]
