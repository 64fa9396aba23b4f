"""What only a socket can send: half bodies, slow bodies, wrong lengths, odd request lines."""

from __future__ import annotations

import socket
import time

import pytest

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp, running_app
from webapp.settings import Settings


def exchange(port: int, *parts: bytes, timeout_s: float = 5.0) -> bytes:
    """Sends the parts and reads until the server closes or falls silent."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            while chunk := connection.recv(65536):
                answer += chunk
                if b"\r\n\r\n" in answer and b"connection: close" not in answer.lower():
                    break
        except (TimeoutError, ConnectionResetError):
            pass  # a server that will not read on may reset the connection
    return answer


def head(path: str, *headers: str, method: str = "POST", host: str = "localhost") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


JSON = "Content-Type: application/json"


def test_slow_body_is_given_up() -> None:
    with running_app(Settings(body_timeout_s=0.5), FakeEngine()) as server:
        began = time.monotonic()
        answer = exchange(
            server.port, head("/api/v1/simulate", JSON, "Content-Length: 50"), b'{"model":'
        )
        assert status(answer) == 408
        assert time.monotonic() - began < 3
        assert b"body_too_slow" in answer


def test_half_a_body_and_gone(hostile_server: LiveApp) -> None:
    with socket.create_connection(("127.0.0.1", hostile_server.port), timeout=5) as connection:
        connection.sendall(head("/api/v1/simulate", JSON, "Content-Length: 50") + b"{")
    assert status(exchange(hostile_server.port, head("/healthz", method="GET"))) == 200


def test_endless_chunks(hostile_server: LiveApp) -> None:
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answer = exchange(
        hostile_server.port,
        head("/api/v1/simulate", JSON, "Transfer-Encoding: chunked"),
        *[chunk] * 100,
        b"0\r\n\r\n",
    )
    assert status(answer) == 413


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (head("/healthz", method="GET", host="evil.example"), 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 400),
        (head("/healthz", "Host: evil.example", method="GET"), 400),
        (head("/api/v1/simulate", JSON, "Content-Length: nan"), 400),
        (head("/api/v1/simulate", JSON, "Content-Length: -5"), 400),
        (head("/api/v1/models/\xff\xfe", method="GET"), 400),
        (head("/api/v1/models/%ff%fe%00", method="GET"), 404),
        (head("/healthz", method="TRACE"), 405),
        (head("/healthz", method="ZQX"), 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
)
def test_odd_requests(hostile_server: LiveApp, raw: bytes, expected: int) -> None:
    answer = exchange(hostile_server.port, raw)
    assert status(answer) == expected
    assert len(answer) < 4096


def test_large_headers_are_refused(hostile_server: LiveApp) -> None:
    answer = exchange(
        hostile_server.port, head("/healthz", "X-Large: " + "x" * 500_000, method="GET")
    )
    assert answer == b"" or 400 <= status(answer) < 500
