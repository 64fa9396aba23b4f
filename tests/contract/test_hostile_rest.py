"""Hostile bodies over REST: always 4xx, small, naming the field, never repeating the input."""

from __future__ import annotations

import json

import httpx2
import pytest

from tests.webapp import hostile
from webapp.problems import MAX_BYTES, MEDIA_TYPE

PATH = "/api/v1/simulate"
VALID: dict[str, object] = {"model": "smollm2-135m", "hardware": "h100-sxm", "output_tokens": 4}
NUMBERS = ("devices", "batch", "prompt_tokens", "output_tokens")
NAMES = ("model", "hardware", "weights", "kv", "activations")

HOSTILE_NUMBERS = [
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "-1", "0", "1.5", "1e3", "true",
    "false", "null", '"1"', '"zqxEchoMarker"', "[]", "{}", "[1]", "9" * 19, "9" * 5000,
    "-" + "9" * 300, "18446744073709551616", "0.1e1", '"NaN"', "[[[[[1]]]]]",
]  # fmt: skip
HOSTILE_NAMES = [
    "NaN", "1", "true", '""', '" "', "[]", "{}", '"zqxEchoMarker"', r'"zqxEchoMarker\ud800"',
    r'"\u0000zqxEchoMarker"', '"<script>zqxEchoMarker</script>"', '"../../etc/zqxEchoMarker"',
    '"' + "x" * 100_000 + '"', r'"h100-sxm\n"', '"zqxEchoMarker; DROP TABLE models"',
    r'"\u202ezqxEchoMarker"', '["h100-sxm"]', '{"zqxEchoMarker": 1}', '"ｈ100-sxm"',
]  # fmt: skip


def post(http: httpx2.Client, body: bytes) -> httpx2.Response:
    return http.post(PATH, content=body, headers={"content-type": "application/json"})


def check_refusal(answer: httpx2.Response, *statuses: int) -> dict:
    assert answer.status_code in statuses
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.headers["content-security-policy"]
    assert len(answer.content) <= MAX_BYTES
    assert hostile.MARKER not in answer.text
    assert "\ud800" not in answer.text
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["detail"]
    return document


def with_raw(field: str, raw: str) -> bytes:
    body = {name: value for name, value in VALID.items() if name != field}
    return (json.dumps(body)[:-1] + f', "{field}": {raw}}}').encode()


def test_the_valid_body_is_accepted(http: httpx2.Client) -> None:
    answer = post(http, json.dumps(VALID).encode())
    assert answer.status_code == 200
    assert answer.json()["ttft"]["kind"] == "predicted"


@pytest.mark.parametrize(("name", "body"), hostile.pairs())
def test_what_is_not_json(http: httpx2.Client, name: str, body: bytes) -> None:
    check_refusal(post(http, body), 400)


@pytest.mark.parametrize("raw", HOSTILE_NUMBERS)
@pytest.mark.parametrize("field", NUMBERS)
def test_numbers(http: httpx2.Client, field: str, raw: str) -> None:
    document = check_refusal(post(http, with_raw(field, raw)), 400, 422)
    assert document["errors"][0]["pointer"].startswith(f"/{field}")
    assert document["errors"][0]["detail"]


@pytest.mark.parametrize("raw", HOSTILE_NAMES)
@pytest.mark.parametrize("field", NAMES)
def test_names(http: httpx2.Client, field: str, raw: str) -> None:
    document = check_refusal(post(http, with_raw(field, raw)), 400, 422)
    assert document["errors"][0]["pointer"].startswith(f"/{field}")


def test_activations_may_be_null_but_names_may_not(http: httpx2.Client) -> None:
    assert post(http, with_raw("activations", "null")).status_code == 200
    for field in ("model", "hardware", "weights", "kv"):
        document = check_refusal(post(http, with_raw(field, "null")), 422)
        assert document["errors"][0]["pointer"] == f"/{field}"


@pytest.mark.parametrize("raw", ["[]", "null", "1", "true", '"x"', "[{}]", "[[]]"])
def test_what_is_no_object(http: httpx2.Client, raw: str) -> None:
    check_refusal(post(http, raw.encode()), 422)


def test_missing_and_unknown_fields_are_named(http: httpx2.Client) -> None:
    document = check_refusal(post(http, b"{}"), 422)
    assert {error["pointer"] for error in document["errors"]} == {"/model", "/hardware"}
    document = check_refusal(post(http, with_raw("btach", "1")), 422)
    assert document["errors"] == [
        {
            "pointer": "/btach",
            "code": "extra_forbidden",
            "detail": "There is no such field; remove it.",
        }
    ]


def test_a_made_up_name_that_is_no_word_is_not_repeated(http: httpx2.Client) -> None:
    document = check_refusal(post(http, with_raw("<b>zqxEchoMarker</b>", "1")), 422)
    assert document["errors"][0]["code"] == "extra_forbidden"


def test_thousands_of_unknown_fields(http: httpx2.Client) -> None:
    body = {**VALID, **{f"f{number}": number for number in range(5000)}}
    document = check_refusal(post(http, json.dumps(body).encode()), 422)
    assert document["more_errors"] == 5000 - len(document["errors"])


@pytest.mark.parametrize("size", [300_000, 3_000_000, 20_000_000])
@pytest.mark.parametrize("shape", [b'{"model": "%s"}', b"%s", b"[%s"])
def test_large_bodies(http: httpx2.Client, size: int, shape: bytes) -> None:
    document = check_refusal(post(http, shape % (b"x" * size)), 413)
    assert "262144" in document["detail"]


def test_what_does_not_go_together(http: httpx2.Client) -> None:
    body = {**VALID, "batch": 4096, "prompt_tokens": 2_000_000}
    document = check_refusal(post(http, json.dumps(body).encode()), 422)
    assert document["errors"][0]["pointer"] == "/prompt_tokens"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("model", "no-such-model", "unknown_name"),
        ("hardware", "no-such-device", "unknown_name"),
        ("weights", "int3", "unknown_name"),
        ("activations", "q4_0", "invalid_request"),
    ],
)
def test_what_the_engine_refuses(http: httpx2.Client, field: str, value: str, code: str) -> None:
    answer = post(http, json.dumps({**VALID, field: value}).encode())
    document = check_refusal(answer, 422)
    assert document["code"] == code
    assert document["errors"][0]["pointer"] == f"/{field}"


@pytest.mark.parametrize("path", ["/api/v1/engine", "/api/v1/nothing", "/healthz", "/"])
def test_other_paths_refuse_hostile_bodies_too(http: httpx2.Client, path: str) -> None:
    for body in (b"[" * 100_000, b'{"a": NaN}', b"x" * 3_000_000):
        answer = http.post(path, content=body, headers={"content-type": "application/json"})
        assert 400 <= answer.status_code < 500
        assert len(answer.content) <= MAX_BYTES


def test_the_server_is_well_afterwards(http: httpx2.Client) -> None:
    assert http.get("/readyz").status_code == 200
