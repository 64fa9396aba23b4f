"""Merges one after the other, against the heap of the ``tokenizers`` library."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from engine.catalog.bpe import replay

LETTERS = "abc"
PAIRS = [("a", "b"), ("b", "a"), ("ab", "c"), ("c", "c"), ("ab", "ab"), ("a", "a"), ("ba", "cc")]
RANKS = {(a.encode(), b.encode()): rank for rank, (a, b) in enumerate(PAIRS)}


def library(word: str) -> list[str]:
    tokens = [*LETTERS, *(a + b for a, b in PAIRS)]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    return Tokenizer(models.BPE(vocabulary, PAIRS)).encode(word).tokens


@given(st.text(LETTERS, min_size=1, max_size=24))
def test_the_same_parts_as_the_library(word: str) -> None:
    merges, parts = replay([letter.encode() for letter in word], lambda *pair: RANKS.get(pair))
    assert [part.decode() for part in parts] == library(word)
    assert len(merges) == len(word) - len(parts)


def test_each_merge_says_where_and_which() -> None:
    merges, parts = replay([b"a", b"a", b"b", b"c"], lambda *pair: RANKS.get(pair))
    assert [(m.at, m.rank, m.left, m.right) for m in merges] == [
        (1, 0, b"a", b"b"),
        (1, 2, b"ab", b"c"),
    ]
    assert parts == (b"a", b"abc")


def test_nothing_to_merge() -> None:
    assert replay([], lambda *_: 0) == ((), ())
    assert replay([b"x", b"y"], lambda *_: None) == ((), (b"x", b"y"))
