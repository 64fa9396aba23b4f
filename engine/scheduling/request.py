"""One request for text, as the scheduler sees it: token ids, counts and blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.scheduling.prefix_cache import PrefixChain
from engine.scheduling.speculation import SpeculationSettings


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


@dataclass(slots=True, eq=False)
class Request:
    """A request and its progress; equal to nothing but itself.

    The one rule of scheduling: ``num_computed_tokens`` (positions whose K and V are in the cache)
    catches up with ``num_known_tokens`` (the prompt plus what was sampled). Prefill, chunked
    prefill, decode and recomputing after a preemption are all this one rule.

    ``prompt_token_ids`` may be any sequence, so a simulation can pass ``range(n)``. ``priority``:
    smaller goes first, where the policy looks at it. ``min_tokens``: a stop token does not end the
    answer before it has so many, and an executor does not sample one. ``ignore_eos``: stop tokens
    are tokens like any other.

    The fields below the first group belong to the scheduler. ``arrival`` numbers the requests in
    the order they came. ``forked_from`` has the same first ``num_common_tokens`` tokens, whose
    blocks can be taken over while it runs. ``num_served_tokens``: positions computed at least once.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    stop_token_ids: frozenset[int] = frozenset()
    session_id: str = ""
    arrival_time: float = 0.0
    priority: int = 0
    min_tokens: int = 0
    ignore_eos: bool = False
    speculation: SpeculationSettings | None = None

    state: RequestState = RequestState.WAITING
    finish_reason: FinishReason | None = None
    output_token_ids: list[int] = field(default_factory=list[int])
    num_computed_tokens: int = 0
    block_table: list[int] = field(default_factory=list[int])
    num_preemptions: int = 0
    arrival: int = 0
    forked_from: Request | None = None
    num_common_tokens: int = 0
    num_served_tokens: int = 0
    chain: PrefixChain = field(default_factory=PrefixChain)

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

    @property
    def num_sharable_tokens(self) -> int:
        """Positions that could be taken over from ``forked_from``: one is left to compute."""
        return min(self.num_common_tokens, self.num_known_tokens - 1)

    def end(self) -> FinishReason | None:
        """Why the output, as it is, is complete; None if it is not."""
        output = self.output_token_ids
        stops = output[-1] in self.stop_token_ids
        if stops and len(output) > self.min_tokens and not self.ignore_eos:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(output) >= self.max_tokens else None

    def known_slice(self, start: int, stop: int) -> Sequence[int]:
        """Token ids at positions ``start`` to ``stop``, across prompt and output."""
        prompt = self.prompt_token_ids
        length = len(prompt)
        if start >= length:
            return self.output_token_ids[start - length : stop - length]
        if stop <= length:
            return prompt[start:stop]
        return [*prompt[start:], *self.output_token_ids[: stop - length]]
