"""What the web process and the engine's worker process say to each other, one JSON object a line.

Torch-free, so both sides import it. ``to_json`` and ``engine.inference.wire.decode`` are exact
inverses.
"""

from __future__ import annotations

from engine.inference.protocol.from_worker import (
    Accepted,
    Configured,
    Done,
    Drafted,
    EngineInfo,
    Failed,
    LaneInfo,
    Opening,
    Pong,
    Preempted,
    Probed,
    Queued,
    Started,
    Step,
    Token,
)
from engine.inference.protocol.message import Message
from engine.inference.protocol.to_worker import (
    Abort,
    ChatTurn,
    Configure,
    Generate,
    Ping,
    Probe,
)

__all__ = [
    "CLIENT_MESSAGES",
    "WORKER_MESSAGES",
    "Abort",
    "Accepted",
    "ChatTurn",
    "Configure",
    "Configured",
    "Done",
    "Drafted",
    "EngineInfo",
    "Failed",
    "Generate",
    "LaneInfo",
    "Message",
    "Opening",
    "Ping",
    "Pong",
    "Preempted",
    "Probe",
    "Probed",
    "Queued",
    "Started",
    "Step",
    "Token",
]

WORKER_MESSAGES: tuple[type[Message], ...] = (
    EngineInfo,
    Pong,
    Opening,
    Accepted,
    Queued,
    Started,
    Step,
    Token,
    Drafted,
    Preempted,
    Done,
    Configured,
    Probed,
    Failed,
)
CLIENT_MESSAGES: tuple[type[Message], ...] = (Generate, Abort, Ping, Configure, Probe)
