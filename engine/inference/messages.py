"""What the web process and the engine's worker process say to each other, one JSON object a line.

Torch-free, so both sides import it. ``to_json`` and ``from_json`` are exact inverses. Times are
milliseconds; ``*_ms`` since the request was received by the worker unless said otherwise.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Message:
    """Base: every message has a ``type`` and converts to and from one JSON object."""

    type: ClassVar[str] = ""

    def to_json(self) -> str:
        return json.dumps({"type": self.type, **asdict(self)}, allow_nan=False)


# ── web process → worker ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ChatTurn:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Generate(Message):
    """Run one request. Exactly one of ``prompt`` and ``messages`` is set.

    ``seed`` None lets the worker draw one; it is told in ``Accepted``. ``dtype`` is ``auto`` or one
    of the dtypes in ``EngineInfo``.
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
    dtype: str = "auto"
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class Abort(Message):
    type: ClassVar[str] = "abort"
    request_id: str


@dataclass(frozen=True, slots=True)
class Ping(Message):
    type: ClassVar[str] = "ping"
    number: int


# ── worker → web process ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LaneInfo:
    """One dtype that the model can run in, with its own KV cache and batch."""

    dtype: str
    weight_bytes: int
    kv_bytes_per_token: int
    kv_blocks_total: int
    kv_block_tokens: int


@dataclass(frozen=True, slots=True)
class EngineInfo(Message):
    """Sent once, when the worker is ready.

    ``model`` holds the architecture under the names of the catalogue's ``ModelSpec``;
    ``provenance`` says where the weights came from; ``random_weights`` marks the last resort.
    """

    type: ClassVar[str] = "ready"
    model_name: str
    model: dict[str, Any]
    provenance: str
    source_format: str
    random_weights: bool
    device: str
    device_name: str
    torch_version: str
    threads: int
    default_dtype: str
    lanes: tuple[LaneInfo, ...]
    max_context: int
    max_running: int
    max_waiting: int
    load_seconds: float
    has_chat_template: bool


@dataclass(frozen=True, slots=True)
class Pong(Message):
    type: ClassVar[str] = "pong"
    number: int


@dataclass(frozen=True, slots=True)
class Accepted(Message):
    """The prompt was tokenized. ``prompt_pieces[i]`` is the visible text of token ``i``.

    ``notices``: what the reader should know of it, as codes: ``characters_left_out`` if the
    vocabulary has no token for some characters, so that the model does not see them.
    """

    type: ClassVar[str] = "accepted"
    request_id: str
    model: str
    device: str
    dtype: str
    prompt_token_ids: tuple[int, ...]
    prompt_pieces: tuple[str, ...]
    max_tokens: int
    seed: int
    tokenize_ms: float
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Queued(Message):
    type: ClassVar[str] = "queued"
    request_id: str
    position: int


@dataclass(frozen=True, slots=True)
class Step(Message):
    """One step in which this request took part.

    ``shapes`` are ``(prefix_tokens, new_tokens, samples)`` of every sequence in the batch, ``own``
    the index of this request's. ``dropped`` counts steps before this one that the web process left
    out because their reader was slow. ``phase`` is this request's own (prefill or decode),
    ``step_phase`` that of the whole batch. ``stages_ms``: embed, layers, logits, sample, where
    measured.
    """

    type: ClassVar[str] = "step"
    request_id: str
    step: int
    phase: str
    step_phase: str
    batch: int
    tokens: int
    own: int
    shapes: tuple[tuple[int, int, bool], ...]
    start_ms: float
    time_ms: float
    stages_ms: dict[str, float]
    own_kv_tokens: int
    own_kv_blocks: int
    kv_blocks_used: int
    kv_blocks_total: int
    running: int
    waiting: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Token(Message):
    """One output token. ``text`` may be empty while a character or stop string is incomplete.

    ``piece`` is the visible text of this token alone. ``itl_ms`` is None for the first token.
    ``detokenize_ms`` is the time that turning this id into text took.
    """

    type: ClassVar[str] = "token"
    request_id: str
    index: int
    id: int
    text: str
    piece: str
    logprob: float | None
    itl_ms: float | None
    time_ms: float
    detokenize_ms: float


@dataclass(frozen=True, slots=True)
class Preempted(Message):
    type: ClassVar[str] = "preempted"
    request_id: str
    lost_tokens: int


@dataclass(frozen=True, slots=True)
class Done(Message):
    """The end. ``tail`` is text that was held back and not sent with any token; ``text`` is the
    whole answer decoded in one go, so that a client can check what it streamed."""

    type: ClassVar[str] = "done"
    request_id: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    ttft_ms: float | None
    itl_ms: tuple[float, ...]
    tail: str
    text: str


@dataclass(frozen=True, slots=True)
class Failed(Message):
    """The request was refused or ended by a failure. ``code`` as in ``engine.errors``."""

    type: ClassVar[str] = "error"
    request_id: str
    code: str
    message: str
    field: str | None = None


WORKER_MESSAGES: tuple[type[Message], ...] = (
    EngineInfo,
    Pong,
    Accepted,
    Queued,
    Step,
    Token,
    Preempted,
    Done,
    Failed,
)
CLIENT_MESSAGES: tuple[type[Message], ...] = (Generate, Abort, Ping)
