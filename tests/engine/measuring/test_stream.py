"""Streams and their times, without a clock: bytes and seconds go in as they would come."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FileFormatError
from engine.measuring.events import MAX_EVENT_BYTES, EventDecoder
from engine.measuring.reply import Arrival, Failure, Reply, Usage
from engine.measuring.stream import StreamReader

BLANK = Reply(sent=0.0, total=9.0)


def chunk(text: str | None = "x", **more: object) -> bytes:
    choices = [] if text is None else [{"delta": {"content": text}}]
    return f"data: {json.dumps({'choices': choices, **more})}\n\n".encode()


def finish(reason: str = "length") -> bytes:
    event = {"choices": [{"delta": {}, "finish_reason": reason}]}
    return f"data: {json.dumps(event)}\n\n".encode()


def usage(prompt: int, output: int) -> bytes:
    return chunk(None, usage={"prompt_tokens": prompt, "completion_tokens": output})


DONE = b"data: [DONE]\n\n"


def read(*blocks: tuple[float, bytes], end: float | None = None) -> Reply:
    reader = StreamReader()
    for at, block in blocks:
        reader.feed(at, block)
    if end is not None:
        reader.finish(end)
    return reader.reply(BLANK)


@given(st.binary(max_size=80), st.data())
def test_events_are_the_same_however_the_bytes_are_cut(noise: bytes, data: st.DataObject) -> None:
    text = b": hello\r\nevent: a\r\ndata: 1\r\ndata:2\r\n\r\ndata: x\n\n\n\ndata: y\r\r" + noise
    text = text.decode("ascii", "replace").replace("�", "?").encode()
    whole = EventDecoder()
    expected = whole.feed(text) + whole.finish()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    decoder, found = EventDecoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += decoder.feed(text[start:end])
    assert found + decoder.finish() == expected
    assert expected[:3] == ["1\n2", "x", "y"]


def test_an_event_without_an_end_does_not_fill_the_memory() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: " + b"x" * (MAX_EVENT_BYTES // 2) + b"\n") == []
    with pytest.raises(FileFormatError, match="longer"):
        decoder.feed(b"data: " + b"x" * (MAX_EVENT_BYTES // 2) + b"\n")


def test_times_of_an_even_stream() -> None:
    blocks = [(0.5 + 0.1 * place, chunk()) for place in range(6)]
    reply = read((0.4, chunk("")), *blocks, (1.2, finish() + usage(30, 6) + DONE))
    assert reply.ok
    assert reply.ttft == 0.5
    assert reply.total == 1.2
    assert reply.itl == pytest.approx(0.1)
    assert reply.gaps == pytest.approx([0.1] * 5)
    assert (reply.tokens, reply.usage) == (6, Usage(30, 6))


def test_chunks_of_many_tokens_make_long_gaps_but_the_same_time_a_token() -> None:
    """Four tokens a chunk every 0.4 s are 0.1 s a token: the chunks are not the tokens."""
    blocks = [(0.5 + 0.4 * place, chunk("a b c d")) for place in range(5)]
    counted = read(*blocks, (2.2, usage(30, 20) + DONE))
    assert counted.itl == pytest.approx(0.1)
    assert counted.gaps == pytest.approx([0.4] * 4)
    uncounted = read(*blocks, (2.2, DONE))
    assert uncounted.itl == pytest.approx(0.4)
    assert uncounted.usage.output is None


def test_chunks_that_come_together_are_one_arrival() -> None:
    """A proxy that holds chunks back: two come with each read. Time a token stays right."""
    reply = read(*((0.2 * place, chunk() + chunk()) for place in range(4)), (0.7, DONE))
    assert [item.chunks for item in reply.arrivals] == [2, 2, 2, 2]
    assert reply.itl == pytest.approx(0.1)
    split = read((0.1, chunk()), (0.10001, chunk()), (0.3, chunk()), (0.4, DONE))
    assert split.arrivals == (Arrival(0.1, 2), Arrival(0.3, 1))
    assert split.itl == pytest.approx(0.2)


def test_one_block_of_everything_has_no_time_between_tokens() -> None:
    reply = read((1.0, chunk() * 5 + usage(3, 5) + DONE))
    assert reply.ok
    assert (reply.ttft, reply.itl, reply.gaps) == (1.0, None, ())


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning"])
def test_thoughts_are_tokens_too(name: str) -> None:
    event = {"choices": [{"delta": {name: "hm"}}]}
    reply = read((0.3, f"data: {json.dumps(event)}\n\n".encode()), (0.5, DONE))
    assert reply.ttft == 0.3


def test_a_completion_has_its_text_elsewhere() -> None:
    event = {"choices": [{"text": "x", "finish_reason": "stop"}]}
    reply = read((0.3, f"data: {json.dumps(event)}\n\n".encode()), end=0.4)
    assert reply.ok
    assert (reply.ttft, reply.finish) == (0.3, "stop")


@pytest.mark.parametrize(
    ("blocks", "failure"),
    [
        ([chunk()], Failure.CUT),
        ([chunk(""), DONE], Failure.EMPTY),
        ([chunk(), b'data: {"error": {"message": "no memory"}}\n\n', DONE], Failure.ERROR_EVENT),
        ([finish()], Failure.EMPTY),
        ([], Failure.CUT),
    ],
)
def test_what_is_no_whole_answer_is_a_failure(blocks: list[bytes], failure: Failure) -> None:
    assert read(*((0.1, block) for block in blocks), end=1.0).failure is failure


@pytest.mark.parametrize("block", [b"data: {\n\n", b"data: 3\n\n", b"data: \xff\n\n"])
def test_what_is_no_event_of_a_completion_is_refused(block: bytes) -> None:
    with pytest.raises(FileFormatError):
        read((0.1, block))


@pytest.mark.parametrize(
    "event",
    [
        {"choices": None, "usage": [], "timings": 3},
        {"choices": [None, 3, {"delta": None}, {"delta": {"content": None}}]},
        {"usage": {"prompt_tokens": -1, "completion_tokens": True}},
        {"timings": {"a": "x", "b": None}},
    ],
)
def test_odd_values_are_passed_over(event: dict[str, object]) -> None:
    block = f"data: {json.dumps(event)}\n\n".encode()
    reply = read((0.1, block), (0.2, chunk()), (0.3, DONE))
    assert reply.ok
    assert (reply.ttft, reply.usage, reply.timings) == (0.2, Usage(), {})


def test_an_answer_that_does_not_stream() -> None:
    reader = StreamReader(streamed=False)
    reader.feed(0.8, b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],')
    reader.feed(0.9, b'"usage": {"prompt_tokens": 4, "completion_tokens": 7}}')
    reader.finish(1.0)
    reply = reader.reply(BLANK)
    assert reply.ok
    assert (reply.ttft, reply.total, reply.itl, reply.tokens) == (1.0, 1.0, None, 7)
    assert not reply.streamed
