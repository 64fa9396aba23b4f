"""The two forms of an answer, chat and completion, whole and in chunks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from webapp.openai.logprobs import chat_logprobs, completion_logprobs
from webapp.openai.sums import timings_of, usage_of
from webapp.schemas.live_events import DoneEvent, TokenEvent
from webapp.schemas.openai_answers import (
    AssistantMessage,
    ChatAnswer,
    ChatChoice,
    CompletionAnswer,
    CompletionChoice,
)


@dataclass(frozen=True, slots=True)
class Head:
    """What every part of one answer repeats."""

    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    number: str = field(default_factory=lambda: secrets.token_hex(12))


class Form(Protocol):
    """How one interface writes answers."""

    def whole(
        self, head: Head, done: Sequence[DoneEvent], tokens: Sequence[Sequence[TokenEvent]]
    ) -> ChatAnswer | CompletionAnswer:
        """The answer of all samples; ``tokens[i]`` are those of ``done[i]``."""
        ...

    def chunk(
        self, head: Head, sample: int, text: str, token: TokenEvent | None, before: int | None
    ) -> dict[str, object]:
        """A part of one sample's text; ``before``: characters sent of it, None before its first
        chunk."""
        ...

    def end(self, head: Head, done: DoneEvent, before: int | None) -> dict[str, object]:
        """The last chunk of one sample, with the text that was held back until now."""
        ...

    def frame(self, head: Head) -> dict[str, object]:
        """A chunk without choices."""
        ...


@dataclass(frozen=True, slots=True)
class ChatForm:
    """``/v1/chat/completions``."""

    logprobs: bool

    def whole(
        self, head: Head, done: Sequence[DoneEvent], tokens: Sequence[Sequence[TokenEvent]]
    ) -> ChatAnswer:
        return ChatAnswer(
            id=f"chatcmpl-{head.number}",
            created=head.created,
            model=head.model,
            choices=[
                ChatChoice(
                    index=event.sample,
                    message=AssistantMessage(content=event.text),
                    logprobs=chat_logprobs(own) if self.logprobs else None,
                    finish_reason=event.finish_reason,
                )
                for event, own in zip(done, tokens, strict=True)
            ],
            usage=usage_of(done),
            timings=timings_of(done),
        )

    def chunk(
        self, head: Head, sample: int, text: str, token: TokenEvent | None, before: int | None
    ) -> dict[str, object]:
        logprobs = chat_logprobs([token]).model_dump() if self.logprobs and token else None
        return self._chunk(head, sample, self._delta(text, before), logprobs, None)

    def end(self, head: Head, done: DoneEvent, before: int | None) -> dict[str, object]:
        delta = self._delta(done.tail, before) if done.tail or before is None else {}
        return self._chunk(head, done.sample, delta, None, done.finish_reason)

    def frame(self, head: Head) -> dict[str, object]:
        return {
            "id": f"chatcmpl-{head.number}",
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
            "choices": [],
        }

    def _delta(self, text: str, before: int | None) -> dict[str, object]:
        role = {"role": "assistant"} if before is None else {}
        return {**role, "content": text}

    def _chunk(
        self, head: Head, index: int, delta: object, logprobs: object, reason: str | None
    ) -> dict[str, object]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {**self.frame(head), "choices": [choice]}


@dataclass(frozen=True, slots=True)
class CompletionForm:
    """``/v1/completions``; ``top`` likeliest tokens were asked for, None: no log-probabilities."""

    top: int | None

    def whole(
        self, head: Head, done: Sequence[DoneEvent], tokens: Sequence[Sequence[TokenEvent]]
    ) -> CompletionAnswer:
        return CompletionAnswer(
            id=f"cmpl-{head.number}",
            created=head.created,
            model=head.model,
            choices=[
                CompletionChoice(
                    index=event.sample,
                    text=event.text,
                    logprobs=None if self.top is None else completion_logprobs(own, 0, self.top),
                    finish_reason=event.finish_reason,
                )
                for event, own in zip(done, tokens, strict=True)
            ],
            usage=usage_of(done),
            timings=timings_of(done),
        )

    def chunk(
        self, head: Head, sample: int, text: str, token: TokenEvent | None, before: int | None
    ) -> dict[str, object]:
        logprobs = None
        if self.top is not None and token is not None:
            logprobs = completion_logprobs([token], before or 0, self.top).model_dump()
        return self._chunk(head, sample, text, logprobs, None)

    def end(self, head: Head, done: DoneEvent, before: int | None) -> dict[str, object]:
        return self._chunk(head, done.sample, done.tail, None, done.finish_reason)

    def frame(self, head: Head) -> dict[str, object]:
        return {
            "id": f"cmpl-{head.number}",
            "object": "text_completion",
            "created": head.created,
            "model": head.model,
            "choices": [],
        }

    def _chunk(
        self, head: Head, index: int, text: str, logprobs: object, reason: str | None
    ) -> dict[str, object]:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return {**self.frame(head), "choices": [choice]}
