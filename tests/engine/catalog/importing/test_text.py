"""JSON from strangers: bounded, each key once, finite."""

from __future__ import annotations

import pytest

from engine.catalog.importing.text import MAX_BYTES, parse_object
from engine.errors import InvalidRequest


def test_an_object_is_read_from_text_and_bytes() -> None:
    assert parse_object('{"a": {"b": [1, 2.5, null]}}', "config") == {"a": {"b": [1, 2.5, None]}}
    assert parse_object('{"é": 1}'.encode(), "config") == {"é": 1}


REFUSED = [
    b"",
    b"[]",
    b"7",
    b'{"a": 1, "a": 2}',
    b'{"a": NaN}',
    b'{"a": Infinity}',
    b'{"a": 1e999}',
    b'{"a": ' + b"9" * 30 + b"}",
    b'{"a": "\xff"}',
    b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"a": ' + b"[" * 17 + b"]" * 17 + b"}",
    b'{"a": "' + b"x" * MAX_BYTES + b'"}',
]


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_anything_else_is_refused_with_the_path(text: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_object(text, "config")
    assert caught.value.field == "config"
