"""Documents that no part of the service may accept, fail on, or repeat."""

from __future__ import annotations

MARKER = "zqxEchoMarker"
"""Stands in every hostile value, so that an echo of it is found."""

NOT_JSON: dict[str, bytes] = {
    "empty": b"",
    "spaces": b"   ",
    "half": b'{"model": "',
    "trailing": b'{} {"zqxEchoMarker": 1}',
    "comma": b'{"a": 1,}',
    "single quotes": b"{'zqxEchoMarker': 1}",
    "bare word": b"zqxEchoMarker",
    "control": b'{"a": "zqxEchoMarker\x01"}',
    "utf-8 bom": b"\xef\xbb\xbf{}",
    "utf-16": '{"zqxEchoMarker": 1}'.encode("utf-16"),
    "utf-16-le": '{"zqxEchoMarker": 1}'.encode("utf-16-le"),
    "utf-32": '{"zqxEchoMarker": 1}'.encode("utf-32"),
    "latin-1": b'{"a": "\xe9zqxEchoMarker"}',
    "overlong": b'{"a": "\xc0\xafzqxEchoMarker"}',
    "surrogate bytes": b'{"a": "\xed\xa0\x80zqxEchoMarker"}',
    "nul bytes": b"\x00\x00\x00\x00",
    "duplicate": b'{"a": "zqxEchoMarker", "a": 1}',
    "duplicate nested": b'{"a": [{"b": 1, "b": "zqxEchoMarker"}]}',
    "lone surrogate": rb'{"a": "zqxEchoMarker\ud800"}',
    "lone low surrogate": rb'{"a": "\udfffzqxEchoMarker"}',
    "surrogate key": rb'{"zqxEchoMarker\ud800": 1}',
    "surrogate deep": rb'{"messages": [[{"role": "\ud800"}]]}',
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": Infinity}',
    "-Infinity": b'{"a": [-Infinity]}',
    "1e999": b'{"a": 1e999}',
    "-1e999": b'{"a": -1e999}',
    "5000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "100000 digits": b"9" * 100_000,
    "20 digits": b'{"a": ' + b"9" * 20 + b"}",
    "65 deep": b'{"a":' * 65 + b"1" + b"}" * 65,
    "33 deep": b"[" * 33 + b"]" * 33,
    "1000 deep": b"[" * 1000 + b"]" * 1000,
    "10k deep": b"[" * 10_000 + b"]" * 10_000,
    "20k open": b"[" * 20_000,
    "100k deep": b"[" * 100_000 + b"]" * 100_000,
    "100k objects": b'{"a":' * 40_000,
    "200k deep": b'{"prompt":' + b"[" * 200_000,
}


def pairs() -> list[tuple[str, bytes]]:
    return list(NOT_JSON.items())
