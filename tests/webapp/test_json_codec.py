"""The one reader and writer of JSON."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webapp import hostile
from webapp import json_codec
from webapp.json_codec import JsonRefused

plain_text = st.text(st.characters(exclude_categories=("Cs",)))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain_text
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(plain_text, inner), max_leaves=20
)


@given(documents)
def test_reads_whatever_the_standard_writer_writes(document: object) -> None:
    text = json.dumps(document)
    assert json_codec.loads(text) == document
    assert json_codec.loads(text.encode()) == document


@given(documents)
def test_written_documents_come_back(document: object) -> None:
    assert json.loads(json_codec.dumps(document)) == document


@pytest.mark.parametrize(("name", "body"), hostile.pairs())
def test_refuses_without_repeating(name: str, body: bytes) -> None:
    with pytest.raises(JsonRefused) as refused:
        json_codec.loads(body)
    told = f"{refused.value.code} {refused.value.detail} {refused.value.pointer}"
    assert hostile.MARKER not in told
    assert len(told) < 300


@pytest.mark.parametrize(
    ("text", "code", "pointer"),
    [
        ('{"a": [1, {"b": NaN}]}', "number_out_of_range", "/a/1/b"),
        ('{"a": 1e999}', "number_out_of_range", "/a"),
        ("Infinity", "number_out_of_range", ""),
        ('{"a": 18446744073709551616}', "number_out_of_range", "/a"),
        ('{"a": {"b": 1, "b": 2}}', "duplicate_key", "/a/b"),
        (r'{"a": ["x", "\ud800"]}', "lone_surrogate", "/a/1"),
        ('{"<b>": {"c": NaN}}', "number_out_of_range", ""),
        ("[" * 40 + "]" * 40, "too_deep", "/0/0/0/0/0/0/0/0"),
        ('{"a": }', "invalid_json", ""),
    ],
)
def test_names_rule_and_place(text: str, code: str, pointer: str) -> None:
    with pytest.raises(JsonRefused) as refused:
        json_codec.loads(text)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)


def test_depth_limit_is_exact() -> None:
    deepest = "[" * json_codec.MAX_DEPTH + "]" * json_codec.MAX_DEPTH
    json_codec.loads(deepest)
    with pytest.raises(JsonRefused, match="Nest at most"):
        json_codec.loads(f"[{deepest}]")


def test_escaped_surrogate_pairs_are_characters() -> None:
    assert json_codec.loads(r'"\ud83d\ude42"') == "🙂"


def test_largest_numbers_are_read() -> None:
    assert json_codec.loads(str(2**63 - 1)) == 2**63 - 1
    assert json_codec.loads("1.7976931348623157e308") == 1.7976931348623157e308


def test_writes_what_json_cannot_hold_as_null_and_replacement() -> None:
    text = json_codec.dumps(
        {"a": math.nan, "b": [-math.inf, 1.5], "c": "x\ud800y", "d": "\ud83d\ude42"}
    )
    assert json.loads(text) == {"a": None, "b": [None, 1.5], "c": "x\ufffdy", "d": "🙂"}
    text.encode("utf-8")


def test_the_largest_messages_are_read_quickly() -> None:
    worst = (
        b"[" + b"[]," * 80_000 + b"1]",
        b"[" + b"1," * 120_000 + b"1]",
        b'["' + b"\\u0041" * 40_000 + b'"]',
    )
    for body in worst:
        began = time.perf_counter()
        json_codec.loads(body)
        assert time.perf_counter() - began < 2
