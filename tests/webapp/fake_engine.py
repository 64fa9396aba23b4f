"""An engine without a model, for tests of the web process: it yields the worker's messages.

Each character of the prompt becomes one token, and the answer is the prompt again. What a test
needs beyond that it sets: a pause per token, a failure at a step, an endless answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Any

from engine.inference.messages import (
    Accepted,
    Configure,
    Configured,
    Done,
    EngineInfo,
    Failed,
    Generate,
    LaneInfo,
    Message,
    Probe,
    Probed,
    Queued,
    Step,
    Token,
)
from engine.inference.probes.text_documents import TextToken, TextTokens

BLOCK = 16


def _lane(dtype: str, number_format: str, weight_bytes: int, kv_bytes_per_token: int) -> LaneInfo:
    return LaneInfo(
        name=dtype,
        dtype=dtype,
        weights=dtype,
        kv_cache="paged",
        prefix_cache=False,
        weight_format=number_format,
        kv_format=number_format,
        on_demand=False,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_bytes_per_token,
        kv_blocks_total=128,
        kv_block_tokens=BLOCK,
    )


INFO = EngineInfo(
    model_name="fake",
    model={
        "family": "llama",
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": 512,
        "tied_embeddings": True,
        "max_context": 2048,
    },
    provenance="made up by a test",
    source_format="F32",
    random_weights=True,
    device="cpu",
    device_name="fake cpu",
    torch_version="0",
    threads=1,
    default_dtype="float32",
    lanes=(
        _lane("float32", "fp32", 4_000_000, 512),
        _lane("bfloat16", "bf16", 2_000_000, 256),
    ),
    max_context=2048,
    max_running=8,
    max_waiting=16,
    max_step_tokens=512,
    policy="first-come",
    load_seconds=0.1,
    has_chat_template=True,
)

QUANTIZED = replace(
    INFO,
    default_dtype="int8-g32-rtn",
    lanes=(
        replace(
            INFO.lanes[0],
            name="int8-g32-rtn",
            weights="int8-g32-rtn",
            weight_format="mixed-8.5",
            weight_bytes=1_100_000,
        ),
    ),
)
"""An engine that was started with quantised weights alone."""

SMOLLM2 = replace(
    INFO,
    model={
        **INFO.model,
        "num_layers": 30,
        "hidden_size": 576,
        "num_attention_heads": 9,
        "num_kv_heads": 3,
        "head_dim": 64,
        "intermediate_size": 1536,
        "vocab_size": 49152,
    },
)
"""The sizes of a model that the catalogue has."""


@dataclass
class FakeEngine:
    """Satisfies ``webapp.live.engine_port.EnginePort``."""

    pause_s: float = 0.0
    fail_after: int | None = None
    raise_after: int | None = None
    endless: bool = False
    letters_per_token: int = 1
    logprob: float | None = -0.5
    state: str = "ready"
    reason: str = ""
    restarts: int = 0
    info: EngineInfo | None = INFO
    started: bool = False
    running: dict[str, asyncio.Event] = field(default_factory=dict)
    requests: list[Generate] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    asked: list[Probe] = field(default_factory=list)
    answers: dict[str, dict[str, Any] | Failed] = field(default_factory=dict)
    holds_answers: bool = False
    made: dict[str, int] = field(default_factory=dict)

    @property
    def tokens_made(self) -> int:
        """Tokens of all requests."""
        return sum(tuple(self.made.values()))

    async def start(self) -> None:
        self.started = True
        if self.state == "stopped":
            self.state = "ready"

    async def stop(self) -> None:
        self.started = False
        self.state = "stopped"

    async def abort(self, request_id: str) -> None:
        self.running[request_id].set()

    async def ask(self, request: Configure | Probe) -> Configured | Probed | Failed:
        """What a test put into ``answers`` for the kind of probe, else a refusal; a text's tokens
        are its characters, as in answers."""
        if not isinstance(request, Probe):
            raise AssertionError("the web process asks probes only so far")
        rid = request.request_id
        self.asked.append(request)
        if self.state != "ready":
            return Failed(rid, "engine_unavailable", "the engine is starting")
        while self.holds_answers:  # noqa: ASYNC110 - set from the thread of a test
            await asyncio.sleep(0.005)
        answer = self.answers.get(request.kind)
        if answer is None and request.kind == "tokenize" and "text" in request.arguments:
            return Probed(rid, _letters(request.arguments["text"]))
        if answer is None:
            return Failed(rid, "invalid_request", "a test has no answer to this", "kind")
        if isinstance(answer, Failed):
            return replace(answer, request_id=rid)
        return Probed(rid, answer)

    async def generate(self, request: Generate) -> AsyncGenerator[Message, None]:
        self.requests.append(request)
        rid = request.request_id
        if self.state != "ready":
            yield Failed(rid, "engine_unavailable", "the engine is starting")
            return
        stop = asyncio.Event()
        self.running[rid] = stop
        ended = False
        try:
            async for message in self._answer(request, stop):
                ended = isinstance(message, Done | Failed)
                yield message
        finally:
            del self.running[rid]
            if not ended:
                self.aborted.append(rid)

    async def _answer(
        self, request: Generate, stop: asyncio.Event
    ) -> AsyncGenerator[Message, None]:
        rid = request.request_id
        prompt = request.prompt or "".join(turn.content for turn in request.messages or ())
        ids = tuple(ord(character) for character in prompt)
        dtype = "float32" if request.weights == "auto" else request.weights
        seed = 7 if request.seed is None else request.seed
        yield Accepted(
            rid, "fake", "cpu", dtype, dtype, ids, tuple(prompt), request.max_tokens, seed, 0.1
        )  # fmt: skip
        yield Queued(rid, 1)
        text = ""
        count = 0
        reason = "length"
        while count < request.max_tokens or self.endless:
            if stop.is_set():
                reason = "abort"
                break
            if not self.endless and count >= len(prompt):
                reason = "stop"
                break
            if count == self.raise_after:
                raise RuntimeError("a test asked for this")
            if count == self.fail_after:
                yield Failed(rid, "step_failed", "the step failed")
                return
            letter = prompt[count % len(prompt)]
            piece = letter * self.letters_per_token
            yield self._step(rid, count, len(ids))
            yield Token(
                rid, count, ord(letter), piece, piece, self.logprob,
                None if count == 0 else 1.0, float(count), 0.01,
            )  # fmt: skip
            text += piece
            count += 1
            self.made[rid] = count
            await self._pause()
        yield Done(rid, reason, len(ids), count, 1.5 if count else None, (1.0,) * max(0, count - 1),
                   "", text)  # fmt: skip

    async def _pause(self) -> None:
        """The time that a token takes."""
        await asyncio.sleep(self.pause_s)

    def _step(self, rid: str, count: int, prompt: int) -> Step:
        shape = (0, prompt, True, 0) if count == 0 else (prompt + count - 1, 1, True, 0)
        phase = "prefill" if count == 0 else "decode"
        tokens = shape[0] + shape[1]
        blocks = -(-tokens // BLOCK)
        return Step(
            rid, count, phase, phase, 1, shape[1], 0, (shape,), float(count), 0.9,
            {"layers": 0.8}, tokens, blocks, blocks, 128, len(self.running), 0,
        )  # fmt: skip


def _letters(text: str) -> dict[str, Any]:
    """A character a token, in the form of the real engine's answer."""
    tokens = tuple(TextToken(ord(c), c, c.encode().hex(), False, c) for c in text)
    return TextTokens(text, len(text), len(text.encode()), tokens, "", (), 0.0).to_dict()
