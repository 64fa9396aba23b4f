"""What the server says over ``/ws/generate``, protocol 1 (see ``webapp/live/PROTOCOL.md``).

``*_ms`` are milliseconds, ``time`` and ``predicted_time`` seconds. Without a note a number is
measured; ``predicted_*``, ``flops``, ``bytes``, ``intensity`` and ``bound`` come from the roofline
model, ``typical_*`` from what was measured of the lane. Times are null where this machine, or the
lane, has not been calibrated.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webapp.schemas.base import OutputModel
from webapp.schemas.engine import EngineDocument, LaneDocument

PROTOCOL = 1


class Limits(OutputModel):
    """The bounds that this server keeps."""

    max_message_bytes: int
    max_prompt_chars: int
    max_tokens: int
    messages_per_s: float
    generations_at_once: int


class HelloEvent(OutputModel):
    type: Literal["hello"] = "hello"
    protocol: int = PROTOCOL
    engine: EngineDocument
    limits: Limits


class PongEvent(OutputModel):
    type: Literal["pong"] = "pong"


class OpeningEvent(OutputModel):
    type: Literal["opening"] = "opening"
    lane: str
    ahead: int
    stage: str
    share: float
    part: str


class AcceptedEvent(OutputModel):
    type: Literal["accepted"] = "accepted"
    model: str
    device: str
    dtype: str
    lane: LaneDocument | None
    prompt_tokens: int
    prompt_token_ids: list[int]
    prompt_pieces: list[str]
    max_tokens: int
    seed: int
    tokenize_ms: float
    opening_ms: float
    notices: list[str]


class QueuedEvent(OutputModel):
    type: Literal["queued"] = "queued"
    position: int
    sample: int


class StartedEvent(OutputModel):
    type: Literal["started"] = "started"
    waited_ms: float
    cached_tokens: int
    forked_tokens: int
    sample: int


class StepEvent(OutputModel):
    type: Literal["step"] = "step"
    step: int
    phase: str
    step_phase: str
    batch: int
    tokens: int
    start_ms: float
    time_ms: float
    time: float
    stages_ms: dict[str, float | None]
    predicted_ms: float | None
    predicted_time: float | None
    typical_ms: float | None
    typical_p10_ms: float | None
    typical_p90_ms: float | None
    flops: float | None
    bytes: float | None
    intensity: float | None
    bound: str | None
    own_kv_tokens: int
    own_kv_blocks: int
    kv_blocks: int
    kv_bytes: int | None
    kv_blocks_used: int
    kv_blocks_total: int
    kv_blocks_cached: int
    kv_blocks_copied: int
    kv_block_tokens: int | None
    running: int
    waiting: int
    pauses_ms: dict[str, float]
    steps_dropped: int
    sample: int


class TopLogprob(OutputModel):
    """One of the likeliest tokens at a position; ``logprob`` as in ``token``."""

    id: int
    piece: str
    logprob: float | None


class TokenEvent(OutputModel):
    type: Literal["token"] = "token"
    index: int
    id: int
    text: str
    piece: str
    logprob: float | None
    itl_ms: float | None
    time_ms: float
    detokenize_ms: float
    top_logprobs: list[TopLogprob]
    sample: int


class DraftedEvent(OutputModel):
    type: Literal["drafted"] = "drafted"
    draft_token_ids: list[int]
    draft_pieces: list[str]
    accepted: int
    sample: int


class PreemptedEvent(OutputModel):
    type: Literal["preempted"] = "preempted"
    lost_tokens: int
    sample: int


class Usage(OutputModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    drafted_tokens: int
    accepted_tokens: int


class DoneEvent(OutputModel):
    type: Literal["done"] = "done"
    finish_reason: str
    usage: Usage
    ttft_ms: float | None
    predicted_ttft_ms: float | None
    typical_ttft_ms: float | None
    itl_ms: list[float]
    predicted_itl_ms: float | None
    typical_itl_ms: float | None
    tail: str
    text: str
    steps_dropped: int
    sample: int
    samples_left: int


class ErrorEvent(OutputModel):
    type: Literal["error"] = "error"
    code: str
    message: str
    field: str | None = None
    reason: str | None = None
    values: dict[str, int | str] = Field(default_factory=dict)


ServerEvent = (
    HelloEvent
    | PongEvent
    | OpeningEvent
    | AcceptedEvent
    | QueuedEvent
    | StartedEvent
    | StepEvent
    | TokenEvent
    | DraftedEvent
    | PreemptedEvent
    | DoneEvent
    | ErrorEvent
)
