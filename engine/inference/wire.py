"""Messages as JSON lines: parsing them back into their types. Torch-free."""

from __future__ import annotations

import json
from typing import Any

from engine.inference.messages import (
    CLIENT_MESSAGES,
    WORKER_MESSAGES,
    Accepted,
    ChatTurn,
    Done,
    Drafted,
    EngineInfo,
    Generate,
    LaneInfo,
    Message,
    Step,
    Token,
)
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings

MAX_LINE_BYTES = 8 * 1024 * 1024
"""Longest line either side reads; a whole answer at the longest context is well below."""

_TYPES = {message.type: message for message in (*CLIENT_MESSAGES, *WORKER_MESSAGES)}


def encode(message: Message) -> bytes:
    """One message as one line."""
    return message.to_json().encode() + b"\n"


def decode(line: bytes) -> Message:
    """One line as the message it was; the exact inverse of ``encode``.

    Raises:
        ValueError: the line is no message of this protocol.
    """
    fields: dict[str, Any] = json.loads(line)
    kind = _TYPES.get(fields.pop("type", ""))
    if kind is None:
        raise ValueError("a line of an unknown type")
    _restore(kind, fields)
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"a malformed {kind.type} message") from error


def _restore(kind: type[Message], fields: dict[str, Any]) -> None:
    """JSON has lists and objects only: give the fields their tuples and types back."""
    if kind is Generate:
        fields["stop"] = tuple(fields["stop"])
        fields["stop_token_ids"] = tuple(fields["stop_token_ids"])
        fields["logit_bias"] = tuple((token, bias) for token, bias in fields["logit_bias"])
        if fields["speculation"] is not None:
            fields["speculation"] = _speculation(fields["speculation"])
        if fields["messages"] is not None:
            fields["messages"] = tuple(ChatTurn(**turn) for turn in fields["messages"])
    elif kind is EngineInfo:
        fields["lanes"] = tuple(LaneInfo(**lane) for lane in fields["lanes"])
    elif kind is Accepted:
        fields["prompt_token_ids"] = tuple(fields["prompt_token_ids"])
        fields["prompt_pieces"] = tuple(fields["prompt_pieces"])
        fields["notices"] = tuple(fields["notices"])
    elif kind is Step:
        fields["shapes"] = tuple((p, n, s, d) for p, n, s, d in fields["shapes"])
    elif kind is Token:
        fields["top"] = tuple((token, piece, logprob) for token, piece, logprob in fields["top"])
    elif kind is Drafted:
        fields["draft_token_ids"] = tuple(fields["draft_token_ids"])
        fields["draft_pieces"] = tuple(fields["draft_pieces"])
    elif kind is Done:
        fields["itl_ms"] = tuple(fields["itl_ms"])


def _speculation(fields: dict[str, Any]) -> SpeculationSettings:
    method = SpeculationMethod(fields.pop("method"))
    return SpeculationSettings(method, **fields)
