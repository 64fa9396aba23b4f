"""Word vectors over REST."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine.catalog.words import MAX_NEIGHBOURS, MAX_WORDS
from webapp.schemas.base import OutputModel, PlainText, StrictModel

Word = Annotated[PlainText, Field(min_length=1, max_length=64)]
Words = Annotated[list[Word], Field(max_length=MAX_WORDS)]


class NearRequest(StrictModel):
    """Words to add and words to take away; the nearest to what is left are asked for."""

    plus: Annotated[Words, Field(min_length=1)]
    minus: Words = Field(default_factory=list)
    k: Annotated[int, Field(ge=1, le=MAX_NEIGHBOURS)] = 10


class MapRequest(StrictModel):
    """Words to be drawn on a plane."""

    words: Annotated[Words, Field(min_length=3)]


class NearWordDocument(OutputModel):
    """A word and its cosine."""

    word: str
    cosine: float


class NearDocument(OutputModel):
    """The nearest words, nearest first. ``source``: whose vectors these are."""

    near: list[NearWordDocument]
    dimensions: int
    source: str


class WordMapDocument(OutputModel):
    """Words on a plane: cosines of all pairs, coordinates, and the share of the variance that each
    of the two directions holds."""

    words: list[str]
    cosines: list[list[float]]
    coordinates: list[tuple[float, float]]
    explained: tuple[float, float]
    source: str
