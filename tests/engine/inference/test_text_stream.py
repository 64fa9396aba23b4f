"""Tokens to text: what is streamed, joined, is the whole decode cut at the first stop string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.inference.text_stream import TextStream
from engine.inference.weights.tiny import tiny_random_checkpoint

TOKENIZER = tiny_random_checkpoint().tokenizer()


def stream_of(ids, stops=(), stop_ids=()):
    stream = TextStream(TOKENIZER, 0.0, tuple(stops), frozenset(stop_ids))
    text = ""
    for index, token in enumerate(ids):
        piece, seconds = stream.push(token, float(index + 1))
        assert seconds >= 0
        text += piece
        if stream.stopped:
            break
    return stream, text + stream.tail()


@given(
    st.lists(st.integers(0, TOKENIZER.vocab_size - 1), max_size=40),
    st.lists(st.text("abc <é🙂", min_size=1, max_size=3), max_size=3),
)
def test_streamed_text_is_the_whole_text(ids, stops):
    stream, text = stream_of(ids, stops)
    assert text == stream.whole_text()
    assert not any(stop in text for stop in stops)


@pytest.mark.parametrize(("stops", "expected"), [(["DEFG"], "ABC"), (["C", "BCDX"], "AB")])
def test_nothing_of_a_stop_string_leaves(stops, expected):
    stream, text = stream_of(TOKENIZER.encode("ABCDEFGHIJ"), stops)
    assert (text, stream.stopped) == (expected, True)


def test_a_short_stop_inside_a_longer_one_is_settled_at_the_end():
    stream, text = stream_of(TOKENIZER.encode("xabc"), ["c", "abcd"])
    assert (text, stream.stopped) == ("xab", True)


def test_a_stop_token_gives_no_text():
    ids = TOKENIZER.encode("hello")
    stream, text = stream_of([*ids, 7], stop_ids=[7])
    assert text == stream.whole_text() == "hello"
    assert stream.token_ids[-1] == 7


def test_times_come_from_the_clock_that_was_given():
    stream, _ = stream_of(TOKENIZER.encode("abcd")[:3])
    assert stream.ttft_ms == 1000.0
    assert stream.itl_ms == (1000.0,) * (len(stream.token_ids) - 1)
