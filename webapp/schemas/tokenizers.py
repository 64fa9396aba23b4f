"""``/api/v1/tokenizers``: vocabularies that are stored here, for comparing them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine.inference.probes.limits import MAX_MERGED_CHARS
from webapp.schemas.base import OutputModel, PlainText, StrictModel

MAX_TEXT_CHARS = 32_768
"""As long as a prompt may be."""

MAX_TRAINED_CHARS = 4_000
"""Each merge counts the pairs of the whole text again."""

MAX_TRAINED_MERGES = 200


class EncodeRequest(StrictModel):
    text: Annotated[PlainText, Field(min_length=1, max_length=MAX_TEXT_CHARS)]


class WordMergesRequest(StrictModel):
    text: Annotated[PlainText, Field(min_length=1, max_length=MAX_MERGED_CHARS)]


class TrainRequest(StrictModel):
    text: Annotated[PlainText, Field(min_length=1, max_length=MAX_TRAINED_CHARS)]
    merges: Annotated[int, Field(ge=1, le=MAX_TRAINED_MERGES)] = 50


class StoredTokenizer(OutputModel):
    id: str
    name: str
    used_by: str
    tokens: int = Field(description="Ordinary ones: control tokens are not stored.")
    source: str
    license: str


class TokenizersDocument(OutputModel):
    """Which vocabularies there are."""

    tokenizers: list[StoredTokenizer]


class StoredToken(OutputModel):
    id: int
    piece: str = Field(description="What to show for it alone; bytes of part characters as <E4>.")
    bytes: str = Field(description="Hexadecimal.")


class EncodedDocument(OutputModel):
    """The tokens of a text."""

    basis: Literal["computed"]
    tokenizer: str
    characters: int
    utf8_bytes: int
    tokens: list[StoredToken]


class StoredMerge(OutputModel):
    at: int = Field(description="Index of the part that is merged with the one after it.")
    rank: int
    token: StoredToken


class StoredWord(OutputModel):
    start: list[StoredToken]
    merges: list[StoredMerge]
    tokens: list[StoredToken]


class WordMergesDocument(OutputModel):
    """Each word of a text from its bytes to its tokens, merge by merge."""

    basis: Literal["computed"]
    tokenizer: str
    words: list[StoredWord]


class TrainedMerge(OutputModel):
    left: str
    right: str
    count: int = Field(description="How often the pair stood in the text just then.")
    token: int


class TrainingDocument(OutputModel):
    """Merges learned from a text, the most frequent pair first."""

    basis: Literal["computed"]
    words: list[str] = Field(description="The text as it was cut: nothing is merged across.")
    letters: list[str] = Field(description="The tokens to begin with: single characters.")
    merges: list[TrainedMerge]
    tokens_before: int
    tokens_after: int


class ComparedDocument(OutputModel):
    """How many tokens each vocabulary makes of a text (in NFC)."""

    basis: Literal["computed"]
    characters: int
    utf8_bytes: int
    counts: dict[str, int]


class LanguageRow(OutputModel):
    tag: str = Field(description="BCP 47.")
    name: str
    own_name: str
    direction: Literal["ltr", "rtl"]
    text: str = Field(description="Empty where all articles were counted.")
    characters: int
    utf8_bytes: int
    counts: dict[str, int] = Field(description="Tokens, by vocabulary.")
    relative: dict[str, float] = Field(description="The same over those of English.")


class LanguagesDocument(OutputModel):
    """The same text in many languages, by every vocabulary."""

    basis: Literal["computed"]
    source: str
    article: int
    languages: list[LanguageRow]
