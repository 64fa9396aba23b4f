"""What a client may say over ``/ws/generate``, protocol 1 (see ``webapp/live/PROTOCOL.md``)."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from engine.inference.messages import ChatTurn, Generate
from engine.inference.request_limits import (
    MAX_BIAS,
    MAX_BIASED_IDS,
    MAX_COUNT_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_SAMPLES,
    MAX_STOP_CHARS,
    MAX_STOP_IDS,
    MAX_STOP_STRINGS,
    MAX_TEMPERATURE,
    MAX_TOKENS,
    MAX_TOP_K,
    MAX_TOP_LOGPROBS,
    MIN_REPETITION_PENALTY,
)
from engine.scheduling.speculation import (
    DEFAULT_DRAFT_TOKENS,
    MAX_DRAFT_TOKENS,
    MAX_EXIT_LAYER,
    MAX_NGRAM,
    SpeculationMethod,
    SpeculationSettings,
)
from webapp.schemas.base import MAX_SAFE_INT, PlainText, StrictModel, check_bytes

MAX_PROMPT_CHARS = 32_768
MAX_PROMPT_BYTES = 61_440
MAX_MESSAGES = 64
MAX_TOKEN_ID = 2**31 - 1


def _prompt_bytes(text: str) -> str:
    return check_bytes(text, MAX_PROMPT_BYTES)


REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
RequestId = Annotated[str, Field(pattern=f"^{REQUEST_ID.pattern}$")]
PromptText = Annotated[
    PlainText,
    Field(min_length=1, max_length=MAX_PROMPT_CHARS),
    AfterValidator(_prompt_bytes),
]
StopString = Annotated[PlainText, Field(min_length=1, max_length=MAX_STOP_CHARS)]
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]

TokenIdText = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
"""A token id as the key of a JSON object."""

LaneName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$")]
"""A weights format or a KV cache by the names of ``engine.inference.lane_settings``."""


class ChatMessage(StrictModel):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: PromptText


class SpeculationRequest(StrictModel):
    """Drafts that one step verifies: from earlier in the text, or from the model's first layers."""

    method: Literal["ngram", "early-exit"]
    draft_tokens: Annotated[int, Field(ge=1, le=MAX_DRAFT_TOKENS)] = DEFAULT_DRAFT_TOKENS
    exit_layer: Annotated[int, Field(ge=1, le=MAX_EXIT_LAYER)] | None = None
    max_ngram: Annotated[int, Field(ge=1, le=MAX_NGRAM)] = 4
    min_ngram: Annotated[int, Field(ge=1, le=MAX_NGRAM)] = 1

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.min_ngram > self.max_ngram:
            raise PydanticCustomError("bad_combination", "min_ngram is larger than max_ngram.")
        if self.exit_layer is not None and self.method != "early-exit":
            raise PydanticCustomError("bad_combination", "exit_layer goes with early-exit only.")
        return self

    def to_engine(self) -> SpeculationSettings:
        """The engine's form of it."""
        return SpeculationSettings(
            SpeculationMethod(self.method),
            self.draft_tokens,
            self.exit_layer,
            self.max_ngram,
            self.min_ngram,
        )


class GenerateRequest(StrictModel):
    """Run one prompt. Exactly one of ``prompt`` and ``messages`` is given."""

    type: Literal["generate"]
    request_id: RequestId | None = None
    prompt: PromptText | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)] | None = (
        None
    )
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = 64
    temperature: Annotated[float, Field(ge=0.0, le=MAX_TEMPERATURE)] = 0.0
    top_k: Annotated[int, Field(ge=0, le=MAX_TOP_K)] = 0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    seed: Annotated[int, Field(ge=0, le=MAX_SAFE_INT)] | None = None
    stop: Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS, default_factory=list)]
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_IDS, default_factory=list)]
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    weights: LaneName | None = None
    kv_cache: LaneName = "paged"
    prefix_cache: bool = False
    speculation: SpeculationRequest | None = None
    n: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    repetition_penalty: Annotated[
        float, Field(ge=MIN_REPETITION_PENALTY, le=MAX_REPETITION_PENALTY)
    ] = 1.0
    presence_penalty: Annotated[float, Field(ge=-MAX_COUNT_PENALTY, le=MAX_COUNT_PENALTY)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-MAX_COUNT_PENALTY, le=MAX_COUNT_PENALTY)] = 0.0
    logit_bias: Annotated[
        dict[TokenIdText, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]],
        Field(max_length=MAX_BIASED_IDS, default_factory=dict),
    ]
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] = 0
    min_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 0
    ignore_eos: bool = False
    priority: Annotated[int, Field(ge=0, le=9)] = 5

    @model_validator(mode="after")
    def _one_format(self) -> Self:
        if self.weights is not None and self.dtype not in ("auto", self.weights):
            raise PydanticCustomError("bad_combination", "Send either dtype or weights.")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise PydanticCustomError("bad_combination", "Send either prompt or messages.")
        if self.messages is not None:
            total = sum(len(message.content) for message in self.messages)
            if total > MAX_PROMPT_CHARS:
                raise PydanticCustomError(
                    "bad_combination",
                    "Send at most {limit} characters in all messages together.",
                    {"limit": MAX_PROMPT_CHARS},
                )
        return self

    def to_engine(self, engine_id: str, session_id: str) -> tuple[Generate, list[str]]:
        """The engine's request, and notices about what was changed on the way.

        One leading byte order mark is taken off the prompt: it is invisible, sticks to pasted
        text and would become a token of its own.
        """
        notices: list[str] = []
        prompt = self.prompt
        if prompt is not None and len(prompt) > 1 and prompt.startswith("\ufeff"):
            prompt = prompt[1:]
            notices.append("byte_order_mark_removed")
        turns: tuple[ChatTurn, ...] | None = None
        if self.messages is not None:
            turns = tuple(ChatTurn(turn.role, turn.content) for turn in self.messages)
        request = Generate(
            request_id=engine_id,
            prompt=prompt,
            messages=turns,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
            stop=tuple(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            weights=self.weights or self.dtype,
            kv_cache=self.kv_cache,
            prefix_cache=self.prefix_cache,
            speculation=None if self.speculation is None else self.speculation.to_engine(),
            n=self.n,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=tuple((int(token), bias) for token, bias in self.logit_bias.items()),
            top_logprobs=self.top_logprobs,
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            priority=self.priority,
            session_id=session_id,
        )
        return request, notices


class AbortRequest(StrictModel):
    """Stop one running request; it ends with ``done`` and the finish reason ``abort``."""

    type: Literal["abort"]
    request_id: RequestId


class PingRequest(StrictModel):
    """Asks for a ``pong``; keeps proxies from closing an idle connection."""

    type: Literal["ping"]


ClientMessage = GenerateRequest | AbortRequest | PingRequest

CLIENT_MESSAGES: dict[str, type[ClientMessage]] = {
    "generate": GenerateRequest,
    "abort": AbortRequest,
    "ping": PingRequest,
}
