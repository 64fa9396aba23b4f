"""What ``/v1`` answers: OpenAI's shapes, and ``timings``, which only this server has."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webapp.schemas.base import OutputModel


class Timings(OutputModel):
    """Means over the choices. Without a prefix a number is measured in the engine; ``predicted_*``
    is the roofline's, ``typical_*`` as long as it usually takes here; null where this machine, or
    these weights, were not measured. TTFT counts from when the engine received the request; the
    predicted ones hold no waiting. ``tokens_per_s``: of one choice, from receipt to its last token.
    """

    ttft_ms: float | None
    predicted_ttft_ms: float | None
    typical_ttft_ms: float | None
    itl_ms: float | None
    predicted_itl_ms: float | None
    typical_itl_ms: float | None
    tokens_per_s: float | None
    predicted_tokens_per_s: float | None
    typical_tokens_per_s: float | None


class PromptTokensDetails(OutputModel):
    cached_tokens: int


class CompletionUsage(OutputModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CandidateLogprob(OutputModel):
    """``bytes`` is null where the text of the token alone does not tell them."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(CandidateLogprob):
    top_logprobs: list[CandidateLogprob]


class ChatLogprobs(OutputModel):
    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(OutputModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class AssistantMessage(OutputModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(OutputModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: str


class CompletionChoice(OutputModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str


class _Answer(OutputModel):
    id: str
    created: int
    model: str
    usage: CompletionUsage
    timings: Timings


class ChatAnswer(_Answer):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class CompletionAnswer(_Answer):
    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class ModelCard(OutputModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class ModelCards(OutputModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class OpenAIError(OutputModel):
    message: str
    type: str
    param: str | None = Field(description="The field at fault, such as messages.0.content.")
    code: str | None


class OpenAIErrorDocument(OutputModel):
    """How every refusal under ``/v1`` looks. Never repeats what was sent."""

    error: OpenAIError


def error_responses(*statuses: int) -> dict[int | str, dict[str, object]]:
    """For ``responses=`` of a route: these statuses answer with such a document."""
    return {status: {"model": OpenAIErrorDocument, "description": "Error"} for status in statuses}
