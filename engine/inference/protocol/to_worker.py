"""What the web process says to the engine's worker process. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from engine.inference.protocol.message import Message
from engine.scheduling.speculation import SpeculationSettings


@dataclass(frozen=True, slots=True)
class ChatTurn:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Generate(Message):
    """Run one request. Exactly one of ``prompt`` and ``messages`` is set.

    ``seed`` None lets the worker draw one; it is told in ``Accepted``. Sample i of ``n`` is what a
    request of its own with the seed plus i would get.

    ``weights``, ``kv_cache`` and ``prefix_cache`` choose the lane, by the names of
    ``engine.inference.lane_settings``; one that is not open yet is opened first. ``auto`` weights
    are the engine's default dtype. ``logit_bias`` are pairs of a token id and what is added to its
    logit; ``top_logprobs`` likeliest tokens are told with each token. ``priority``: smaller goes
    first, under that policy.
    """

    type: ClassVar[str] = "generate"
    request_id: str
    prompt: str | None = None
    messages: tuple[ChatTurn, ...] | None = None
    max_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    weights: str = "auto"
    kv_cache: str = "paged"
    prefix_cache: bool = False
    speculation: SpeculationSettings | None = None
    n: int = 1
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int = 0
    min_tokens: int = 0
    ignore_eos: bool = False
    priority: int = 0
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class Abort(Message):
    type: ClassVar[str] = "abort"
    request_id: str


@dataclass(frozen=True, slots=True)
class Ping(Message):
    type: ClassVar[str] = "ping"
    number: int


@dataclass(frozen=True, slots=True)
class Configure(Message):
    """Turn the knobs of all lanes, now and for everyone. None leaves a knob as it is.

    ``policy`` is one of ``engine.scheduling.policies.POLICIES``; ``usable_blocks`` KV blocks of a
    lane are handed out at most.
    """

    type: ClassVar[str] = "configure"
    request_id: str
    max_running: int | None = None
    max_step_tokens: int | None = None
    policy: str | None = None
    usable_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Probe(Message):
    """Look inside the model at one text. ``kind`` and ``arguments`` as in
    ``engine.inference.probes``."""

    type: ClassVar[str] = "probe"
    request_id: str
    kind: str
    arguments: dict[str, Any]
