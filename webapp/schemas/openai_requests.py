"""What clients of OpenAI's interface may ask of ``/v1``.

Fields that this server serves, those that it takes and does not use because they change nothing
here (``Unused``), and those that it refuses because leaving them out would answer another question
(``Refused``, and values other than the harmless ones of ``_only``). Null is the same as absent.
``top_k``, ``min_p``, ``repetition_penalty``, ``min_tokens``, ``ignore_eos``, ``stop_token_ids`` and
``priority`` are named as vLLM names them; load generators need them.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from engine.inference.request_limits import (
    MAX_BIAS,
    MAX_BIASED_IDS,
    MAX_COUNT_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_SAMPLES,
    MAX_STOP_IDS,
    MAX_STOP_STRINGS,
    MAX_TEMPERATURE,
    MAX_TOKENS,
    MAX_TOP_K,
    MAX_TOP_LOGPROBS,
    MIN_REPETITION_PENALTY,
)
from webapp.schemas.base import MAX_SAFE_INT, StrictModel
from webapp.schemas.live_requests import (
    MAX_MESSAGES,
    GenerateRequest,
    LaneName,
    PromptText,
    StopString,
    TokenId,
    TokenIdText,
)

COMPLETION_TOKENS = 16
"""``max_tokens`` of a completion that names none, as OpenAI's reference has it."""

CHAT_TOKENS = 512
"""The same of a chat, where the reference has no bound: one machine answers many here."""

Unused = Annotated[
    object, Field(description="Taken, so that clients that send it work; changes nothing here.")
]


def _only(sentence: str, *harmless: object) -> BeforeValidator:
    """Takes null and the values that ask for what happens anyway, and refuses every other one."""

    def check(value: object) -> object:
        if value is None or any(type(value) is type(same) and value == same for same in harmless):
            return value
        raise PydanticCustomError("bad_value", sentence)  # pyright: ignore[reportArgumentType]

    return BeforeValidator(check)


Nothing = Annotated[list[object], Field(max_length=0)]


class StreamOptions(StrictModel):
    """What a stream holds beside its text."""

    include_usage: bool | None = None
    include_obfuscation: Unused = None


class TextFormat(StrictModel):
    """The one format of answers."""

    type: Literal["text"]


class TextPart(StrictModel):
    """A part of a message."""

    type: Literal["text"]
    text: PromptText


def _joined(content: object) -> object:
    """The text of a message whose content is a list of text parts; anything else as it is."""
    if not isinstance(content, list):
        return content
    parts = cast("list[object]", content)
    texts: list[str] = []
    for part in parts:
        fields = cast("dict[str, object]", part) if isinstance(part, dict) else {}
        text = fields.get("text")
        if fields.get("type") != "text" or not isinstance(text, str) or len(fields) > 2:
            raise PydanticCustomError(
                "bad_value", "Send text, or parts with a type of text and a text: no images."
            )
        texts.append(text)
    return "".join(texts)


class ChatTurn(StrictModel):
    """One message of a chat; ``developer`` is another name of ``system``."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        PromptText,
        BeforeValidator(_joined, json_schema_input_type=PromptText | list[TextPart]),
    ]
    name: Unused = None
    refusal: Unused = None
    tool_calls: Annotated[Nothing | None, _only("Tools are not served here.", [])] = None

    @property
    def as_here(self) -> dict[str, object]:
        """As the websocket takes it."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": self.content}


def _listed(stop: object) -> object:
    return [stop] if isinstance(stop, str) else stop


Stops = Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)]


class _Request(StrictModel):
    """What chats and completions share."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=MAX_TEMPERATURE)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] | None = None
    seed: Annotated[int, Field(ge=0, le=MAX_SAFE_INT)] | None = None
    stop: Annotated[
        Stops | None, BeforeValidator(_listed, json_schema_input_type=StopString | Stops | None)
    ] = None
    presence_penalty: (
        Annotated[float, Field(ge=-MAX_COUNT_PENALTY, le=MAX_COUNT_PENALTY)] | None
    ) = None
    frequency_penalty: (
        Annotated[float, Field(ge=-MAX_COUNT_PENALTY, le=MAX_COUNT_PENALTY)] | None
    ) = None
    logit_bias: (
        Annotated[
            dict[TokenIdText, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]],
            Field(max_length=MAX_BIASED_IDS),
        ]
        | None
    ) = None

    top_k: Annotated[int, Field(ge=0, le=MAX_TOP_K)] | None = None
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    repetition_penalty: (
        Annotated[float, Field(ge=MIN_REPETITION_PENALTY, le=MAX_REPETITION_PENALTY)] | None
    ) = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_IDS)] | None = None
    priority: Annotated[int, Field(ge=0, le=9)] | None = None
    kv_cache: LaneName | None = None
    prefix_cache: bool | None = None

    user: Unused = None
    metadata: Unused = None
    store: Unused = None
    service_tier: Unused = None
    safety_identifier: Unused = None
    prompt_cache_key: Unused = None
    prompt_cache_retention: Unused = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of its usage."""
        options = self.stream_options
        return options is not None and options.include_usage is True

    def _shared(self, max_tokens: int, top_logprobs: int) -> dict[str, object]:
        """The fields of ``GenerateRequest`` that both have; temperature is 1 unless sent, as in
        OpenAI's reference."""
        same = (
            "top_p", "n", "seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias",
            "top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids",
            "priority", "kv_cache", "prefix_cache",
        )  # fmt: skip
        sent = {name: getattr(self, name) for name in same if getattr(self, name) is not None}
        return {
            "type": "generate",
            "max_tokens": max_tokens,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_logprobs": top_logprobs,
            **sent,
        }


def _one_prompt(prompt: object) -> object:
    if not isinstance(prompt, list):
        return prompt
    prompts = cast("list[object]", prompt)
    if len(prompts) != 1 or not isinstance(prompts[0], str):
        raise PydanticCustomError(
            "bad_value",
            "Send one prompt, as text: a list of prompts or of token ids is not served.",
        )
    return prompts[0]


class CompletionRequest(_Request):
    """A text to continue."""

    prompt: Annotated[
        PromptText,
        BeforeValidator(
            _one_prompt,
            json_schema_input_type=PromptText
            | Annotated[list[PromptText], Field(min_length=1, max_length=1)],
        ),
    ]
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: Annotated[Literal[False] | None, _only("The prompt is not echoed.", False)] = None
    best_of: Annotated[Literal[1] | None, _only("Only a best_of of 1 is served.", 1)] = None
    suffix: Annotated[None, _only("Text is only continued: leave suffix out.")] = None

    @property
    def wants_logprobs(self) -> bool:
        return self.logprobs is not None

    def to_generate(self, weights: str | None) -> GenerateRequest:
        """As the websocket takes it. Raises ``ValidationError`` for values that do not go
        together."""
        fields = self._shared(self.max_tokens or COMPLETION_TOKENS, self.logprobs or 0)
        return GenerateRequest.model_validate({**fields, "weights": weights, "prompt": self.prompt})


class ChatRequest(_Request):
    """A conversation to answer, written out by the model's own template."""

    messages: Annotated[list[ChatTurn], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    parallel_tool_calls: Unused = None
    reasoning_effort: Unused = None
    verbosity: Unused = None
    tool_choice: Annotated[
        Literal["none", "auto"] | None, _only("Tools are not served here.", "none", "auto")
    ] = None
    tools: Annotated[Nothing | None, _only("Tools are not served here.", [])] = None
    functions: Annotated[Nothing | None, _only("Functions are not served here.", [])] = None
    function_call: Annotated[None, _only("Functions are not served here.")] = None
    response_format: Annotated[
        TextFormat | None, _only("Answers are text of any form.", {"type": "text"})
    ] = None
    modalities: Annotated[list[Literal["text"]] | None, _only("Answers are text.", ["text"])] = None
    audio: Annotated[None, _only("Answers are text.")] = None
    prediction: Annotated[None, _only("Predicted outputs are not served.")] = None
    web_search_options: Annotated[None, _only("Nothing is searched here.")] = None

    @model_validator(mode="after")
    def _logprobs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise PydanticCustomError("bad_combination", "top_logprobs goes with logprobs only.")
        return self

    @property
    def wants_logprobs(self) -> bool:
        return self.logprobs is True

    def to_generate(self, weights: str | None) -> GenerateRequest:
        """As the websocket takes it. Raises ``ValidationError`` for values that do not go
        together."""
        tokens = self.max_completion_tokens or self.max_tokens or CHAT_TOKENS
        fields = self._shared(tokens, self.top_logprobs or 0)
        messages = [turn.as_here for turn in self.messages]
        return GenerateRequest.model_validate({**fields, "weights": weights, "messages": messages})
