"""Word vectors: what lies near what, in a table made for exactly that.

A language model's own embedding table was trained to predict tokens; GloVe's vectors were trained
so that words that occur in the same company lie close together (Pennington, Socher, Manning 2014).

Shapes: v words · d dimensions · n words asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidRequest
from engine.refusals import refused

DATA = Path(__file__).resolve().parent / "data" / "words" / "glove-6b-50d.npz"
MAX_WORDS = 64
MAX_NEIGHBOURS = 100

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class NearWord:
    """A word and the cosine of its vector with the one that was asked about."""

    word: str
    cosine: float


@dataclass(frozen=True, slots=True)
class WordMap:
    """Words against each other: cosines ``[n][n]``, and coordinates ``[n][2]`` along the two
    directions in which they differ most. ``explained``: the share of their variance along each."""

    words: tuple[str, ...]
    cosines: tuple[tuple[float, ...], ...]
    coordinates: tuple[tuple[float, float], ...]
    explained: tuple[float, float]


class WordVectors:
    """Answers about a table of word vectors ``[v, d]``."""

    def __init__(self, words: Sequence[str], table_vd: Floats) -> None:
        self.words = tuple(words)
        self._places = {word: place for place, word in enumerate(self.words)}
        self._table_vd = table_vd
        self._unit_vd = table_vd / np.linalg.norm(table_vd, axis=1, keepdims=True)

    @property
    def dimensions(self) -> int:
        """Numbers a word."""
        return self._table_vd.shape[1]

    def near(
        self, plus: Sequence[str], minus: Sequence[str] = (), k: int = 10
    ) -> tuple[NearWord, ...]:
        """The ``k`` words nearest to the sum of unit vectors of ``plus`` less that of ``minus``,
        by cosine, the words asked for left out (Mikolov, Yih, Zweig 2013, "Linguistic regularities
        in continuous space word representations").

        Raises:
            InvalidRequest: no word, too many, an unknown one, or k out of range.
        """
        if not 1 <= k <= MAX_NEIGHBOURS:
            raise InvalidRequest(f"k is 1 to {MAX_NEIGHBOURS}", field="k")
        if not plus:
            raise refused("nothing_to_add", field="plus")
        added, taken = self._find(plus, "plus"), self._find(minus, "minus")
        target_d = self._unit_vd[added].sum(0) - self._unit_vd[taken].sum(0)
        length = float(np.linalg.norm(target_d))
        if length == 0:
            raise refused("sum_is_nothing", field="minus")
        cosines_v = self._unit_vd @ (target_d / length)
        cosines_v[[*added, *taken]] = -2.0  # below every cosine
        nearest: list[int] = np.argsort(-cosines_v)[:k].tolist()
        return tuple(NearWord(self.words[place], float(cosines_v[place])) for place in nearest)

    def cosine(self, one: str, other: str) -> float:
        """The cosine of two words' vectors.

        Raises:
            InvalidRequest: a word is unknown.
        """
        a, b = self._find((one, other), "words")
        return float(self._unit_vd[a] @ self._unit_vd[b])

    def map(self, words: Sequence[str]) -> WordMap:
        """Cosines of all pairs, and the first two principal components of the vectors.

        Raises:
            InvalidRequest: fewer than three different words, too many, or an unknown one.
        """
        places = self._find(words, "words")
        if len(set(places)) < 3:
            raise refused("three_words", field="words")
        rows_nd = self._table_vd[places].astype(np.float64)
        centred_nd = rows_nd - rows_nd.mean(0)
        left_nn, spread_n, _ = np.linalg.svd(centred_nd, full_matrices=False)
        share_n = spread_n**2 / (spread_n**2).sum()
        unit_nd = self._unit_vd[places]
        return WordMap(
            words=tuple(words),
            cosines=tuple(tuple(map(float, row)) for row in unit_nd @ unit_nd.T),
            coordinates=tuple((float(x), float(y)) for x, y in left_nn[:, :2] * spread_n[:2]),
            explained=(float(share_n[0]), float(share_n[1])),
        )

    def _find(self, words: Sequence[str], field: str) -> list[int]:
        if len(words) > MAX_WORDS:
            raise InvalidRequest(f"give at most {MAX_WORDS} words", field=field)
        places = [self._places.get(word.strip().lower()) for word in words]
        if None in places:
            number = places.index(None) + 1
            raise refused("word_unknown", field=field, number=number, known=len(self.words))
        return [place for place in places if place is not None]


@cache
def word_vectors() -> WordVectors:
    """GloVe 6B, 50 dimensions, of the most frequent words; read once, 4 MB."""
    with np.load(DATA) as stored:
        words = str(stored["words"]).split("\n")
        return WordVectors(words, stored["vectors"].astype(np.float32))
