"""Hostile messages over the websocket: an ``error`` event each, and the connection stays up."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tests.webapp import hostile
from tests.webapp.live_server import LiveApp, events_until_end
from webapp.live.connection import MAX_MESSAGE_BYTES

FIELDS: dict[str, list[str]] = {
    "max_tokens": ["0", "-1", "8193", "1.5", "true", '"8"', "null", "[]", "9" * 19, "1e2"],
    "temperature": ["-0.1", "5.1", "true", '"nan"', '"0"', "null", "{}"],
    "top_k": ["-1", "1001", "1.0", "false", '"1"', "null"],
    "top_p": ["0", "-1", "1.01", "true", "null"],
    "min_p": ["-0.1", "1.1", '"x"', "null"],
    "seed": ["-1", "9007199254740992", "1.5", "true", '"1"'],
    "stop": ['"x"', "[1]", '[""]', '["' + "x" * 65 + '"]', "null", json.dumps(["x"] * 9)],
    "stop_token_ids": ["[-1]", "[2147483648]", "[1.5]", "[true]", '["1"]', json.dumps([1] * 17)],
    "dtype": ['"float16"', "1", "null", '"AUTO"'],
    "request_id": ['""', '"a b"', '"' + "x" * 65 + '"', "1", '"<b>"', '"é"'],
    "prompt": ['""', "1", "[]", '["a"]', "{}", r'"a\u0000b"', '"' + "x" * 32_769 + '"'],
    "prompt_tokens": ["1", '"zqxEchoMarker"'],
    "session_id": ['"x"'],
    "logprobs": ["true"],
}
MESSAGES = [
    "null", "[]", "{}", '"user"', '[{"role": "user"}]', '[{"role": "tool", "content": "x"}]',
    '[{"role": "user", "content": 1}]', '[{"role": "user", "content": ""}]',
    '[{"role": "user", "content": "x", "zqxEchoMarker!": 1}]', "[[]]",
    r'[{"role": "user\u0000", "content": "x"}]',
    json.dumps([{"role": "user", "content": "x"}] * 65),
    json.dumps([{"role": "user", "content": "x" * 20_000}] * 2),
]  # fmt: skip


@pytest.fixture(scope="module")
def socket(hostile_server: LiveApp) -> Iterator[ClientConnection]:
    with hostile_server.connect() as connection:
        yield connection


def refused(connection: ClientConnection, message: str | bytes) -> dict:
    """Sends a message; its error event. The connection has to answer a ping afterwards."""
    connection.send(message)
    raw = str(connection.recv(timeout=5))
    assert hostile.MARKER not in raw
    assert len(raw) < 1024
    event = json.loads(raw, parse_constant=pytest.fail)
    assert event["type"] == "error"
    assert event["code"]
    assert event["message"]
    connection.send('{"type": "ping"}')
    assert json.loads(connection.recv(timeout=5))["type"] == "pong"
    return event


@pytest.mark.parametrize(
    ("name", "body"), [pair for pair in hostile.pairs() if len(pair[1]) <= MAX_MESSAGE_BYTES]
)
def test_what_is_not_json(socket: ClientConnection, name: str, body: bytes) -> None:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        assert refused(socket, body)["code"] == "binary_message"
        return
    event = refused(socket, text)
    assert event["code"] not in ("internal_error", "unknown_type")
    assert refused(socket, body)["code"] == "binary_message"


@pytest.mark.parametrize(
    "message",
    [
        "[]", "null", "1", '"generate"', "{}", '{"type": null}', '{"type": 1}',
        '{"type": ["ping"]}',
        '{"type": "zqxEchoMarker"}', '{"type": {"zqxEchoMarker": 1}}', '{"type": "GENERATE"}',
        '{"type": "ping", "<zqxEchoMarker>": 1}', '{"type": "abort"}', '{"type": "done"}',
        '{"type": "abort", "request_id": 1}', '{"type": "abort", "request_id": "zqxEchoMarker2"}',
        '{"type": "generate"}', '{"type": "generate", "prompt": "a", "messages": []}',
        '{"type": "generate", "prompt": null, "messages": null}',
    ],
)  # fmt: skip
def test_messages_of_no_known_kind(socket: ClientConnection, message: str) -> None:
    refused(socket, message)


@pytest.mark.parametrize(
    ("field", "raw"), [(field, raw) for field, values in FIELDS.items() for raw in values]
)
def test_fields(socket: ClientConnection, field: str, raw: str) -> None:
    start = '{"type": "generate"' + ("" if field == "prompt" else ', "prompt": "a"')
    event = refused(socket, f'{start}, "{field}": {raw}}}')
    assert (event["field"] or "").startswith(f"/{field}")


@pytest.mark.kind("O08")
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "max_tokens", "seed"])
@pytest.mark.parametrize("raw", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_numbers_that_are_none(socket: ClientConnection, field: str, raw: str) -> None:
    event = refused(socket, f'{{"type": "generate", "prompt": "a", "{field}": {raw}}}')
    assert (event["code"], event["field"]) == ("number_out_of_range", f"/{field}")


@pytest.mark.parametrize("raw", MESSAGES)
def test_conversations(socket: ClientConnection, raw: str) -> None:
    event = refused(socket, f'{{"type": "generate", "messages": {raw}}}')
    assert event["code"] == "invalid_message"


def test_refusals_carry_a_valid_request_id(socket: ClientConnection) -> None:
    event = refused(
        socket, '{"type": "generate", "request_id": "mine", "prompt": "a", "max_tokens": 0}'
    )
    assert (event["request_id"], event["seq"], event["field"]) == ("mine", 0, "/max_tokens")


def test_large_messages_below_the_frame_limit(socket: ClientConnection) -> None:
    event = refused(
        socket, json.dumps({"type": "generate", "prompt": "中" * 21_000}, ensure_ascii=False)
    )
    assert event["field"] == "/prompt"
    # In escapes, a character takes six bytes of the frame.
    text = json.dumps({"type": "generate", "prompt": "\\u0061" * 10_000}).replace("\\\\", "\\")
    socket.send(text)
    assert events_until_end(socket)[0]["prompt_tokens"] == 10_000


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES + 1, 3_000_000])
def test_larger_frames_close_with_1009(hostile_server: LiveApp, size: int) -> None:
    with hostile_server.connect() as connection:
        with contextlib.suppress(ConnectionClosed):  # it may be closed before all was sent
            connection.send("x" * size)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=5)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_the_engine_saw_nothing_of_it(socket: ClientConnection, hostile_server: LiveApp) -> None:
    before = len(hostile_server.engine.requests)
    refused(socket, '{"type": "generate", "prompt": "a", "temperature": NaN}')
    assert len(hostile_server.engine.requests) == before
    socket.send('{"type": "generate", "prompt": "ok"}')
    assert events_until_end(socket)[-1]["text"] == "ok"
