"""What drafting did to answers, beside plain decoding's answers to the same prompts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.benchmarks.pays.prompts import FREE, REPETITIVE

PLAIN = "plain"
KINDS = (REPETITIVE, FREE)


@dataclass(frozen=True, slots=True)
class Answer:
    """Its tokens, the steps that gave those after the first, and the drafts of these steps."""

    token_ids: tuple[int, ...]
    steps: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A method's answers to prompts of one kind, beside those of plain decoding."""

    method: str
    kind: str
    plain: Sequence[Answer]
    drafting: Sequence[Answer]

    @property
    def same(self) -> int:
        """Prompts that were answered with the same tokens."""
        pairs = zip(self.plain, self.drafting, strict=True)
        return sum(plain.token_ids == other.token_ids for plain, other in pairs)

    @property
    def acceptance(self) -> float | None:
        """The share of drafts that were right; None if nothing was drafted."""
        drafted = sum(answer.drafted for answer in self.drafting)
        return sum(answer.accepted for answer in self.drafting) / drafted if drafted else None

    @property
    def tokens_per_step(self) -> float:
        """After the first token of each answer, which is the prefill's."""
        tokens = sum(len(answer.token_ids) - 1 for answer in self.drafting)
        return tokens / sum(answer.steps for answer in self.drafting)

    def to_document(self) -> dict[str, object]:
        return {
            "method": self.method,
            "kind": self.kind,
            "prompts": len(self.plain),
            "same": self.same,
            "acceptance": self.acceptance,
            "tokens_per_step": self.tokens_per_step,
            "drafted": sum(answer.drafted for answer in self.drafting),
            "accepted": sum(answer.accepted for answer in self.drafting),
        }


@dataclass(frozen=True, slots=True)
class Timed:
    """An outcome with the decode seconds of each prompt, plain and drafting."""

    outcome: Outcome
    plain_seconds: Sequence[float]
    seconds: Sequence[float]

    @property
    def speed_up(self) -> float:
        """Of all prompts together."""
        return sum(self.plain_seconds) / sum(self.seconds)

    @property
    def speed_ups(self) -> list[float]:
        """Of each prompt."""
        pairs = zip(self.plain_seconds, self.seconds, strict=True)
        return [plain / drafting for plain, drafting in pairs]

    @property
    def quarter_points(self) -> tuple[float, float]:
        """The speed-ups that a quarter and three quarters of the prompts stay below."""
        low, _, high = statistics.quantiles(self.speed_ups, n=4, method="inclusive")
        return low, high

    def to_document(self) -> dict[str, object]:
        return {
            **self.outcome.to_document(),
            "speed_up": self.speed_up,
            "plain_seconds": list(self.plain_seconds),
            "seconds": list(self.seconds),
        }
