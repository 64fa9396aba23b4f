"""Merges one after the other, against the heap of the ``tokenizers`` library."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from engine.catalog.bpe import merge_word, replay, train

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
    assert merge_word(word.encode(), lambda *pair: RANKS.get(pair)) == list(parts)


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
    assert merge_word(b"xy", lambda *_: None) == [b"x", b"y"]
    assert merge_word(b"", lambda *_: 0) == []


def test_training_as_the_paper_shows_it() -> None:
    """Sennrich et al., figure 1: e s, es t, l o, lo w come first with these words."""
    words = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    learned = train(words, 4)
    pieces = learned.pieces
    merges = [(pieces[m.left], pieces[m.right], m.count) for m in learned.merges]
    assert merges == [("e", "s", 9), ("es", "t", 9), ("l", "o", 7), ("lo", "w", 7)]
    assert ["".join(pieces[token] for token in word) for word in learned.words] == words


@given(st.lists(st.text(LETTERS, min_size=1, max_size=12), min_size=1, max_size=8))
def test_learned_merges_are_the_ones_that_encoding_makes(words: list[str]) -> None:
    """Merging with what was learned, by rank, gives the text as training left it."""
    learned = train(words, 12)
    pieces = learned.pieces
    ranks = {
        (pieces[m.left].encode(), pieces[m.right].encode()): rank
        for rank, m in reversed(list(enumerate(learned.merges)))
    }
    for word, left in zip(words, learned.words, strict=True):
        parts = merge_word(word.encode(), lambda *pair: ranks.get(pair))
        assert [part.decode() for part in parts] == [pieces[token] for token in left]
    assert all(m.count >= 2 for m in learned.merges)


def test_overlapping_pairs_count_once() -> None:
    (merge,) = train(["aaa", "aa"], 1).merges
    assert merge.count == 2
    assert train(["abc"], 5).merges == ()
