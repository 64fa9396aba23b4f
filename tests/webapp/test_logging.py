"""Logs are one line an event and never hold a prompt."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from unicodedata import category

import pytest

PROGRAM = """
import structlog, sys
from webapp.logging import configure_logging
from webapp.settings import Settings
configure_logging(Settings(log_format=sys.argv[1]))
log = structlog.get_logger("t")
log.info("hello", name="a\\r\\nINJECTED line")
log.info("request", path="/\\x1b]0;title\\x07\\x1b[31m\\x9b2J\\u202e")
def fail(prompt):
    raise RuntimeError("failed\\x1b[2J")
try:
    fail("zqx" + "EchoMarker" * 1)
except RuntimeError:
    log.exception("went_wrong")
import logging
try:
    fail("zqx" + "EchoMarker" * 1)
except RuntimeError:
    logging.getLogger("uvicorn.error").exception("stock")
"""


def run(log_format: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, log_format],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_json_lines() -> None:
    lines = [json.loads(line) for line in run("json").splitlines()]
    assert [line["event"] for line in lines] == ["hello", "request", "went_wrong", "stock"]
    assert lines[0]["name"] == "a\r\nINJECTED line"
    assert all(line["timestamp"].endswith("Z") for line in lines)
    assert "zqxEchoMarker" not in json.dumps(lines)
    assert lines[2]["exception"][0]["exc_type"] == "RuntimeError"


def test_console() -> None:
    text = run("console")
    assert "zqxEchoMarker" not in text
    assert "RuntimeError: failed" in text
    assert "\nINJECTED" not in text
    assert r"path=/\x1b]0;title\x07\x1b[31m\x9b2J\u202e" in text
    assert {"Cc", "Cf"} & {category(letter) for letter in text.replace("\n", "")} == set()


@pytest.mark.usefixtures("client")
def test_prompts_are_not_logged(
    client: object, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with client.websocket_connect("ws://localhost/ws/generate") as socket:  # pyright: ignore
        socket.receive_json()
        socket.send_json({"type": "generate", "prompt": "zqxEchoMarker"})
        while socket.receive_json()["type"] != "done":
            pass
        socket.send_json({"type": "generate", "prompt": "zqxEchoMarker", "max_tokens": -1})
        socket.receive_json()
    captured = capsys.readouterr()
    assert "zqxEchoMarker" not in caplog.text + captured.out + captured.err
