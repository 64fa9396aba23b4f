"""What the engine's worker process says to the web process. Torch-free.

Times are milliseconds; ``*_ms`` since the request was received by the worker unless said otherwise.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.inference.protocol.message import Message


@dataclass(frozen=True, slots=True)
class LaneInfo:
    """One way in which the model runs, with its own KV cache and batch.

    ``name`` as in ``LaneSettings``; ``dtype`` is what is computed in, ``float32`` or ``bfloat16``;
    ``weights`` and ``kv_cache`` the formats' names. ``weight_format`` and ``kv_format`` are the
    catalogue's names of them. ``on_demand``: opened because a request asked for it, and closed
    again when others need the room. A token sees the last ``window`` positions and the first
    ``sinks``, with None all before it. Steps of at most ``native_rows`` tokens run natively; 0
    where none does (yet).
    """

    name: str
    dtype: str
    weights: str
    kv_cache: str
    prefix_cache: bool
    weight_format: str
    kv_format: str
    on_demand: bool
    weight_bytes: int
    kv_bytes_per_token: int
    kv_blocks_total: int
    kv_block_tokens: int
    window: int | None = None
    sinks: int = 0
    native_rows: int = 0


@dataclass(frozen=True, slots=True)
class EngineInfo(Message):
    """Sent when the worker is ready, and again whenever a lane or a knob has changed, a lane also
    by running natively from now on.

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
    max_step_tokens: int
    policy: str
    load_seconds: float
    has_chat_template: bool


@dataclass(frozen=True, slots=True)
class Pong(Message):
    type: ClassVar[str] = "pong"
    number: int


@dataclass(frozen=True, slots=True)
class Opening(Message):
    """The request waits for its lane, which is being opened: weights may have to be quantised.

    Comes again whenever something has changed. ``ahead`` lanes are opened before it. ``stage`` is
    one of ``engine.inference.lane_orders.OpeningStage``, ``share`` what is done of that stage, from
    0 to 1, and ``part`` what it is at, such as ``layers.3``.
    """

    type: ClassVar[str] = "opening"
    request_id: str
    lane: str
    ahead: int = 0
    stage: str = "waiting"
    share: float = 0.0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Accepted(Message):
    """The prompt was tokenized. ``prompt_pieces[i]`` is the visible text of token ``i``.

    ``opening_ms``: what opening the lane took, if it had to be opened for this request. TTFT
    counts from then on.

    ``notices``: what the reader should know of it, as codes: ``characters_left_out`` if the
    vocabulary has no token for some characters, so that the model does not see them.
    """

    type: ClassVar[str] = "accepted"
    request_id: str
    model: str
    device: str
    dtype: str
    lane: str
    prompt_token_ids: tuple[int, ...]
    prompt_pieces: tuple[str, ...]
    max_tokens: int
    seed: int
    tokenize_ms: float
    opening_ms: float = 0.0
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Queued(Message):
    type: ClassVar[str] = "queued"
    request_id: str
    position: int
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Started(Message):
    """The request joins the next step. ``cached_tokens`` positions were found in the prefix cache,
    ``forked_tokens`` are shared with another sample of the same prompt."""

    type: ClassVar[str] = "started"
    request_id: str
    waited_ms: float
    cached_tokens: int
    forked_tokens: int
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Step(Message):
    """One step in which this request took part.

    ``shapes`` are ``(prefix_tokens, new_tokens, samples, drafts)`` of every sequence in the batch,
    ``own`` the index of this request's. ``dropped`` counts steps before this one that the web
    process left out because their reader was slow. ``phase`` is this request's own:
    prefill, decode, or recompute (what was computed before, with the KV cache off or after a
    preemption); ``step_phase`` that of the whole batch, mixed if they differ. ``pauses_ms``: what
    the engine did since this request's step before, or since it could have run, by the causes of
    ``engine.inference.timeline``; empty if there was no pause. ``stages_ms``: embed, layers,
    logits, sample, where measured.
    """

    type: ClassVar[str] = "step"
    request_id: str
    step: int
    phase: str
    step_phase: str
    batch: int
    tokens: int
    own: int
    shapes: tuple[tuple[int, int, bool, int], ...]
    start_ms: float
    time_ms: float
    stages_ms: dict[str, float]
    own_kv_tokens: int
    own_kv_blocks: int
    kv_blocks_used: int
    kv_blocks_total: int
    running: int
    waiting: int
    kv_blocks_cached: int = 0
    kv_blocks_copied: int = 0
    pauses_ms: dict[str, float] = dataclasses.field(default_factory=dict[str, float])
    dropped: int = 0
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Token(Message):
    """One output token. ``text`` may be empty while a character or stop string is incomplete.

    ``piece`` is the visible text of this token alone. ``itl_ms`` is None for the first token, and
    0 for the further tokens of a step that verified drafts. ``detokenize_ms`` is the time that
    turning this id into text took. ``top`` are the likeliest tokens: id, piece, log-probability.
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
    top: tuple[tuple[int, str, float | None], ...] = ()
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Drafted(Message):
    """A step verified drafts: their ids and visible texts, and how many of them the model agrees
    with, from the first on: these are the next tokens, unless the text ends among them.

    Comes after the step and before its tokens.
    """

    type: ClassVar[str] = "drafted"
    request_id: str
    draft_token_ids: tuple[int, ...]
    draft_pieces: tuple[str, ...]
    num_accepted: int
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Preempted(Message):
    type: ClassVar[str] = "preempted"
    request_id: str
    lost_tokens: int
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Done(Message):
    """The end of one sample. ``tail`` is text that was held back and not sent with any token;
    ``text`` is the whole answer decoded in one go, so that a client can check what it streamed.
    ``samples_left`` of the request still run: with 0 it has ended."""

    type: ClassVar[str] = "done"
    request_id: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    ttft_ms: float | None
    itl_ms: tuple[float, ...]
    tail: str
    text: str
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    sample: int = 0
    samples_left: int = 0


@dataclass(frozen=True, slots=True)
class Configured(Message):
    """The knobs as they are now; ``usable_blocks`` None: all that a lane has."""

    type: ClassVar[str] = "configured"
    request_id: str
    max_running: int
    max_step_tokens: int
    policy: str
    usable_blocks: int | None


@dataclass(frozen=True, slots=True)
class Probed(Message):
    """What a probe found, as a JSON document."""

    type: ClassVar[str] = "probed"
    request_id: str
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failed(Message):
    """The request was refused or ended by a failure. ``code`` as in ``engine.errors``; ``reason``
    and ``values`` as in ``engine.refusals``, None and nothing where it has no sentence there."""

    type: ClassVar[str] = "error"
    request_id: str
    code: str
    message: str
    field: str | None = None
    reason: str | None = None
    values: dict[str, int | str] = dataclasses.field(default_factory=dict[str, int | str])
