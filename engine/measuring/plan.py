"""What is measured: prompt lengths, requests at once, and how many of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.errors import InvalidRequest

MAX_CONCURRENCY = 512
MAX_PROMPT = 2_000_000
MAX_OUTPUT = 131_072
MAX_REQUESTS = 100_000
_LEAST_REQUESTS = 10
_WAVES = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """Each prompt length with each concurrency is one point, of ``requests`` answers each (None:
    three for each client, ten at least).

    Raises:
        InvalidRequest: a number is out of its range (names the field).
    """

    prompt_tokens: tuple[int, ...] = (128, 512, 2048)
    concurrency: tuple[int, ...] = (1, 4, 16)
    output_tokens: int = 64
    requests: int | None = None
    same_prompt: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        _check("prompt_tokens", self.prompt_tokens, MAX_PROMPT)
        _check("concurrency", self.concurrency, MAX_CONCURRENCY)
        _check("output_tokens", (self.output_tokens,), MAX_OUTPUT)
        if self.requests is not None:
            _check("requests", (self.requests,), MAX_REQUESTS)

    def requests_at(self, concurrency: int) -> int:
        """Measured requests of a point."""
        return self.requests or max(_LEAST_REQUESTS, _WAVES * concurrency)

    @property
    def points(self) -> Iterator[tuple[int, int]]:
        """Prompt tokens and requests at once of each point, in the order of measuring."""
        return ((tokens, many) for tokens in self.prompt_tokens for many in self.concurrency)

    @property
    def total(self) -> int:
        """Requests that are measured, all points together."""
        return len(self.prompt_tokens) * sum(map(self.requests_at, self.concurrency))


def _check(field: str, values: tuple[int, ...], most: int) -> None:
    if not values or not all(1 <= value <= most for value in values):
        raise InvalidRequest(f"choose whole numbers from 1 to {most:,}", field=field)
    if len(set(values)) < len(values):
        raise InvalidRequest("each number may stand there once", field=field)
