"""Questions to the vocabularies that are stored here, answered in a thread, one at a time.

They are read when the first question needs one: about 100 MB for all of them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

import anyio.to_thread

from engine.catalog.bpe import train
from engine.catalog.parallel_texts import ParallelText, parallel_source, parallel_texts
from engine.catalog.pieces import visible_piece
from engine.catalog.vocabularies import Token, vocabulary, vocabulary_sources
from engine.errors import QueueFull
from engine.refusals import refused
from webapp.waiting import Gone, Line

T = TypeVar("T")
Document = dict[str, object]

ALL_ARTICLES = 0
_MOST = 32
_TRAINING_CUT = "r50k"


class Tokenizing:
    """Answers one question after the other; ``QueueFull`` where too many wait, ``AskerGone`` where
    the asker has ``gone`` when it is their turn."""

    def __init__(self) -> None:
        self._line = Line(1, _MOST, partial(refused, "prompts_at_once", kind=QueueFull))

    async def _run(self, work: Callable[[], T], gone: Gone) -> T:
        async with self._line.place(gone):
            return await anyio.to_thread.run_sync(work)

    async def encode(self, name: str, text: str, gone: Gone) -> Document:
        """The tokens of a text. Raises ``UnknownName``."""
        return await self._run(partial(_encoded, name, text), gone)

    async def merges(self, name: str, text: str, gone: Gone) -> Document:
        """Each word of a text, merge by merge. Raises ``UnknownName``."""
        return await self._run(partial(_merged, name, text), gone)

    async def compare(self, text: str, gone: Gone) -> Document:
        """How many tokens each vocabulary makes of a text."""
        return await self._run(partial(_compared, text), gone)

    async def train(self, text: str, merges: int, gone: Gone) -> Document:
        """A vocabulary learned from a text."""
        return await self._run(partial(_trained, text, merges), gone)

    async def languages(self, article: int, gone: Gone) -> Document:
        """What each vocabulary makes of the same article in all languages."""
        return await self._run(partial(_in_languages, article), gone)


def listed() -> Document:
    """Which vocabularies there are."""
    return {
        "tokenizers": [
            {
                "id": about.id,
                "name": about.name,
                "used_by": about.used_by,
                "tokens": about.tokens,
                "source": about.source,
                "license": about.license,
            }
            for about in vocabulary_sources().values()
        ]
    }


def _token(token: Token) -> Document:
    return {
        "id": token.id,
        "piece": visible_piece(token.bytes),
        "bytes": token.bytes.hex(),
    }


def _tokens(tokens: Sequence[Token]) -> list[Document]:
    return [_token(token) for token in tokens]


def _encoded(name: str, text: str) -> Document:
    return {
        "basis": "computed",
        "tokenizer": name,
        "characters": len(text),
        "utf8_bytes": len(text.encode()),
        "tokens": _tokens(vocabulary(name).encode(text)),
    }


def _merged(name: str, text: str) -> Document:
    found = vocabulary(name)
    return {
        "basis": "computed",
        "tokenizer": name,
        "words": [
            {
                "start": _tokens(word.letters),
                "merges": [
                    {
                        "at": merge.at,
                        "rank": merge.rank,
                        "token": _token(Token(merge.rank, merge.left + merge.right)),
                    }
                    for merge in word.merges
                ],
                "tokens": _tokens(word.tokens),
            }
            for word in found.replay(text)
        ],
    }


def _counts(text: str) -> dict[str, int]:
    return {name: len(vocabulary(name).encode(text)) for name in vocabulary_sources()}


@dataclass(frozen=True, slots=True)
class LanguageCount:
    """Tokens of the same text in one language, by vocabulary, and over those of English."""

    language: ParallelText
    texts: Sequence[str]
    counts: Mapping[str, int]
    relative: Mapping[str, float]


@cache
def count_languages(article: int = ALL_ARTICLES) -> tuple[LanguageCount, ...]:
    """What each vocabulary makes of an article in all languages: two seconds for all articles."""
    spoken = parallel_texts()
    counts = [_count(_chosen(language, article)) for language in spoken]
    english = counts[0]
    return tuple(
        LanguageCount(
            language,
            _chosen(language, article),
            count,
            {name: count[name] / english[name] for name in count},
        )
        for language, count in zip(spoken, counts, strict=True)
    )


def _chosen(language: ParallelText, article: int) -> Sequence[str]:
    return (
        language.articles if article == ALL_ARTICLES else language.articles[article - 1 : article]
    )


def _count(texts: Sequence[str]) -> dict[str, int]:
    counts = [_counts(text) for text in texts]
    return {name: sum(count[name] for count in counts) for name in vocabulary_sources()}


def _compared(text: str) -> Document:
    composed = unicodedata.normalize("NFC", text)
    return {
        "basis": "computed",
        "characters": len(composed),
        "utf8_bytes": len(composed.encode()),
        "counts": _counts(composed),
    }


def _trained(text: str, merges: int) -> Document:
    words = vocabulary(_TRAINING_CUT).words(text)
    learned = train(words, merges)
    pieces = learned.pieces
    return {
        "basis": "computed",
        "words": words,
        "letters": list(learned.letters),
        "merges": [
            {
                "left": pieces[merge.left],
                "right": pieces[merge.right],
                "count": merge.count,
                "token": merge.token,
            }
            for merge in learned.merges
        ],
        "tokens_before": len(text),
        "tokens_after": sum(map(len, learned.words)),
    }


def _in_languages(article: int) -> Document:
    return {
        "basis": "computed",
        "source": parallel_source(),
        "article": article,
        "languages": [
            {
                "tag": found.language.tag,
                "name": found.language.name,
                "own_name": found.language.own_name,
                "direction": found.language.direction,
                "text": "" if article == ALL_ARTICLES else found.texts[0],
                "characters": sum(map(len, found.texts)),
                "utf8_bytes": sum(len(text.encode()) for text in found.texts),
                "counts": dict(found.counts),
                "relative": dict(found.relative),
            }
            for found in count_languages(article)
        ],
    }
