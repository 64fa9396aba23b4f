"""Broken websocket frames: closed with the code of the protocol, without a traceback."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.webapp.live_server import LiveApp, wait_for
from tests.webapp.raw_socket import CLOSE, FIN, PING, TEXT, RawSocket


@pytest.fixture
def raw(hostile_server: LiveApp) -> Iterator[RawSocket]:
    client = RawSocket(hostile_server.port)
    yield client
    client.socket.close()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("unmasked", 1002),
        ("reserved bit", 1002),
        ("reserved opcode", 1002),
        ("continuation of nothing", 1002),
        ("long ping", 1002),
        ("fragmented ping", 1002),
        ("bad utf-8", 1007),
        ("huge length", 1009),
        ("close code 999", 1002),
    ],
)
def test_broken_frames(
    raw: RawSocket, caplog: pytest.LogCaptureFixture, name: str, code: int
) -> None:
    match name:
        case "unmasked":
            raw.send(FIN | TEXT, b"{}", masked=False)
        case "reserved bit":
            raw.send(FIN | 0x40 | TEXT, b"{}")
        case "reserved opcode":
            raw.send(FIN | 3, b"{}")
        case "continuation of nothing":
            raw.send(FIN, b"{}")
        case "long ping":
            raw.send(FIN | PING, b"x" * 126)
        case "fragmented ping":
            raw.send(PING, b"x")
        case "bad utf-8":
            raw.send(FIN | TEXT, b'{"type": "\xff\xfe"}')
        case "huge length":
            raw.send(FIN | TEXT, b"x", length=2**62)
        case _:
            raw.send(FIN | CLOSE, struct.pack("!H", 999))
    assert raw.close_code() == code
    assert "Exception in ASGI application" not in caplog.text


def test_fragments_are_one_message(raw: RawSocket) -> None:
    raw.send(TEXT, b'{"type": ')
    raw.send(0, b'"pi')
    raw.send(FIN | PING, b"between")
    raw.send(FIN, b'ng"}')
    seen = []
    while not seen or b"pong" not in seen[-1][1]:
        frame = raw.frame()
        assert frame is not None
        seen.append(frame)
    assert (10, b"between") in seen


def test_a_flood_of_pings_is_answered_or_closed(raw: RawSocket, hostile_server: LiveApp) -> None:
    for _ in range(1000):
        raw.send(FIN | PING, b"flood")
    pongs = 0
    while pongs < 1000:
        frame = raw.frame()
        assert frame is not None
        pongs += frame[0] == 10
    raw.socket.close()
    live = hostile_server.app.state.live
    wait_for(lambda: len(live) == 0)
