"""Streamed text equals the whole decode, and half a character is never shown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.inference.byte_level import BYTE_LEVEL_ALPHABET
from engine.inference.detokenizer import StreamDetokenizer
from engine.inference.tokenizer import Tokenizer
from tests.engine.inference.test_tokenizer import TOKENIZERS, llama2, smollm2, tiny


def byte_id(tokenizer: Tokenizer, byte: int) -> int:
    """The id of the token that stands for this one byte."""
    letter = next(letter for letter, value in BYTE_LEVEL_ALPHABET.items() if value == byte)
    token = tokenizer._backend.token_to_id(letter)
    assert token is not None
    return token


def stream(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> list[str]:
    """What comes out for each token, and last what the flush gives."""
    detokenizer = StreamDetokenizer(tokenizer, skip_special=skip_special)
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


@pytest.mark.kind("O01")
@pytest.mark.parametrize(
    ("data", "chunks"),
    [
        (b"\xf0\x9f\x99\x82", ["", "", "", "🙂", ""]),
        (b"\xe4\xb8\xad", ["", "", "中", ""]),
        (b"a\xc3\xa9b", ["a", "", "é", "b", ""]),
        (b"\xe4\xb8\xad\xe6\x96", ["", "", "中", "", "", "\ufffd"]),
        (b"\xe4\xb8a", ["", "", "\ufffda", ""]),
        (b"\xe4\xe4\xb8\xad", ["", "\ufffd", "", "中", ""]),
        (b"\xb8\xad", ["\ufffd", "\ufffd", ""]),
        (b"\xed\xa0\x80", None),  # a surrogate is not UTF-8
        (b"\xf0\x9f\x99", ["", "", "", "\ufffd"]),
        (b"", [""]),
    ],
)
@pytest.mark.parametrize("make", [smollm2, tiny])
def test_bytes_one_by_one(make, data, chunks):
    tokenizer = make()
    ids = [byte_id(tokenizer, byte) for byte in data]
    out = stream(tokenizer, ids)
    assert chunks is None or out == chunks
    assert "".join(out) == tokenizer.decode(ids) == data.decode("utf-8", "replace")


@pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS.keys())
@pytest.mark.parametrize("skip_special", [True, False])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_ids(make, skip_special, data):
    tokenizer = make()
    some = st.integers(0, min(tokenizer.vocab_size, 600) - 1)
    ids = data.draw(st.lists(some, max_size=40))
    out = stream(tokenizer, ids, skip_special=skip_special)
    assert "".join(out) == tokenizer.decode(ids, skip_special=skip_special)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40))
def test_valid_text_never_shows_a_replacement_mark(text):
    out = stream(tiny(), [byte_id(tiny(), byte) for byte in text.encode()])
    assert "".join(out) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in chunk for chunk in out)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=24))
def test_invalid_bytes_as_the_library_decodes_them(data):
    """Byte for byte what the tokenizers library's own decoder makes of the same ids."""
    ids = [byte_id(tiny(), byte) for byte in data]
    expected = tiny()._backend.decode(ids, skip_special_tokens=True)
    assert "".join(stream(tiny(), ids)) == expected


def test_control_tokens_do_not_break_a_character():
    tokenizer = tiny()
    ids = [byte_id(tokenizer, 0xE4), byte_id(tokenizer, 0xB8), 2, byte_id(tokenizer, 0xAD)]
    assert stream(tokenizer, ids) == ["", "", "", "中", ""]
    shown = stream(tokenizer, ids, skip_special=False)
    assert "".join(shown) == tokenizer.decode(ids, skip_special=False) == "\ufffd<|im_end|>\ufffd"


def test_the_tokenizers_own_leading_space_is_stripped_once():
    tokenizer = llama2()
    ids = tokenizer.encode("  the lo")
    assert "".join(stream(tokenizer, ids)) == "  the lo"
    space = tokenizer._backend.token_to_id("▁")
    assert space is not None
    assert stream(tokenizer, [space, space, space]) == ["", " ", " ", ""]


def test_an_unknown_id_gives_nothing():
    assert stream(tiny(), [10**6, byte_id(tiny(), 0x41)]) == ["", "A", ""]


def test_a_long_answer_costs_no_more_a_token_than_a_short_one():
    """Counted, not timed: only the token's own bytes are decoded, however long the text is."""
    tokenizer = tiny()
    detokenizer = StreamDetokenizer(tokenizer)
    decoded: list[int] = []
    inner = detokenizer._utf8

    class Counting:
        def decode(self, content: bytes, final: bool = False) -> str:
            decoded.append(len(content))
            return inner.decode(content, final)

    detokenizer._utf8 = Counting()  # pyright: ignore[reportAttributeAccessIssue]
    ids = tokenizer.encode("The 中 of the people 🙂. " * 400)
    text = "".join(detokenizer.push(token) for token in ids)
    assert text == "The 中 of the people 🙂. " * 400
    assert decoded == [len(tokenizer.token_bytes(token)) for token in ids]
