"""``PROTOCOL.md`` and the typed messages say the same."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest
from pydantic import BaseModel

import webapp.live
from webapp.live.connection import CLOSE_IDLE, MAX_FLOOD, MAX_MESSAGE_BYTES
from webapp.schemas import live_events, live_requests
from webapp.settings import Settings

TEXT = Path(webapp.live.__file__).with_name("PROTOCOL.md").read_text()


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def documented(title: str) -> dict[str, set[str]]:
    """Fields by message type, as the tables of a section list them."""
    found: dict[str, set[str]] = {}
    current = ""
    for row in section(title).splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if not row.startswith("|") or cells[0] in ("`type`", "---"):
            continue
        if cells[0]:
            current = cells[0].strip("`")
        names = re.findall(r"`(\w+)`", cells[1]) if len(cells) > 1 else []
        found.setdefault(current, set()).update(names)
    return found


def test_every_event_and_field() -> None:
    events: dict[str, set[str]] = {}
    for model in typing.get_args(live_events.ServerEvent):
        fields: dict[str, typing.Any] = model.model_fields
        events[fields["type"].default] = set(fields) - {"type"}
    assert documented("From the server") == events


def test_every_client_message_and_field() -> None:
    messages = {
        name: set(model.model_fields) - {"type"}
        for name, model in live_requests.CLIENT_MESSAGES.items()
    }
    assert documented("From the client") == messages


@pytest.mark.parametrize(
    "number",
    [
        live_requests.MAX_PROMPT_CHARS,
        live_requests.MAX_PROMPT_BYTES,
        live_requests.MAX_TOKENS,
        live_requests.MAX_TOP_K,
    ],
)
def test_bounds(number: int) -> None:
    assert f"{number:,}" in section("From the client")


def test_numbers_of_the_ends() -> None:
    assert f"protocol {live_events.PROTOCOL}" in TEXT
    assert MAX_MESSAGE_BYTES == 64 * 1024
    assert "a frame above 64 KiB" in TEXT
    assert f"({MAX_FLOOD} over the rate)" in TEXT
    assert f"no running request for {Settings().live_idle_s / 60:g} minutes" in TEXT
    assert f"| {CLOSE_IDLE} | idle" in TEXT
    assert f"nothing was read for {Settings().live_stuck_s:g} s" in TEXT


def test_incoming_models_are_strict() -> None:
    for model in (*live_requests.CLIENT_MESSAGES.values(), live_requests.ChatMessage):
        assert issubclass(model, BaseModel)
        config = model.model_config
        assert config.get("strict") is True
        assert config.get("extra") == "forbid"
        assert config.get("allow_inf_nan") is False
