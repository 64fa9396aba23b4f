"""Hostile query strings and headers on pages and fragments: an answer, never a failure."""

from __future__ import annotations

import httpx2
import pytest

PATHS = (
    "/",
    "/fragments/engine",
    "/fragments/dtype",
    "/fragments/roofline",
    "/fragments/elsewhere",
    "/compare",
    "/runs/example",
)
NAMES = (
    "lang", "known", "dtype", "model", "hardware", "devices", "weights", "kv", "activations",
    "batch", "prompt_tokens", "output_tokens", "a", "b",
)  # fmt: skip
VALUES = (
    "", "zqxEchoMarker", "NaN", "Infinity", "1e999", "-1", "0", "9" * 5000, "1.5", "true", "%00",
    "%ed%a0%80", "%ff%fe", "<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>",
    "../../etc/passwd", "{{7*7}}", "%0d%0aSet-Cookie:%20a=b", "x" * 8000, "٣", "１",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", VALUES)
def test_query_values(http: httpx2.Client, path: str, value: str) -> None:
    for name in NAMES:
        query = f"hardware=h100-sxm&model=smollm2-135m&{name}={value}".replace("<", "%3C")
        answer = http.get(f"{path}?{query}")
        assert answer.status_code < 500, name
        assert "set-cookie" not in answer.headers or name == "lang"
        assert "<script>alert(1)" not in answer.text
        assert "<img src=x" not in answer.text
        assert answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "headers",
    [
        {"accept-language": "x" * 5000},
        {"accept-language": "zh;q=NaN, en;q=1e999, *;q=-1, ;;;,,"},
        {"cookie": "lang=zqxEchoMarker; lang=zh; =; ;;"},
        {"cookie": "lang=" + "x" * 5000},
        {"accept": "zqxEchoMarker"},
        {"accept-encoding": "zqxEchoMarker, gzip;q=NaN"},
        {"if-none-match": "x" * 5000},
        {"range": "bytes=9999999-0"},
    ],
)
def test_headers(http: httpx2.Client, headers: dict[str, str]) -> None:
    for path in (*PATHS, "/static/vendor/README.md", "/api/v1/models"):
        answer = http.get(path, headers=headers)
        assert answer.status_code < 500
        assert "zqxEchoMarker" not in answer.text
