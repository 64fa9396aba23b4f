"""One request for text, as the scheduler sees it: token ids, counts and blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class RequestState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended: a stop token or string, the token limit, its owner, or a failure."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(slots=True)
class Request:
    """A request and its progress.

    The one rule of scheduling: ``num_computed_tokens`` (positions whose K and V are in the cache)
    catches up with ``num_known_tokens`` (the prompt plus what was sampled). Prefill, chunked
    prefill, decode and recomputing after a preemption are all this one rule.

    ``prompt_token_ids`` may be any sequence, so a simulation can pass ``range(n)``.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    stop_token_ids: frozenset[int] = frozenset()
    session_id: str = ""
    arrival_time: float = 0.0

    state: RequestState = RequestState.WAITING
    finish_reason: FinishReason | None = None
    output_token_ids: list[int] = field(default_factory=list[int])
    num_computed_tokens: int = 0
    block_table: list[int] = field(default_factory=list[int])
    num_preemptions: int = 0

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_known_tokens(self) -> int:
        """Tokens whose identity is known: the prompt and every sampled token."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def num_pending_tokens(self) -> int:
        """Known tokens whose K and V are not in the cache yet."""
        return self.num_known_tokens - self.num_computed_tokens

    @property
    def max_total_tokens(self) -> int:
        """The most tokens this request can ever know."""
        return len(self.prompt_token_ids) + self.max_tokens

    def known_slice(self, start: int, stop: int) -> Sequence[int]:
        """Token ids at positions ``start`` to ``stop``, across prompt and output."""
        prompt = self.prompt_token_ids
        if stop <= len(prompt):
            return prompt[start:stop]
        if start >= len(prompt):
            return self.output_token_ids[start - len(prompt) : stop - len(prompt)]
        return [*prompt[start:], *self.output_token_ids[: stop - len(prompt)]]
