"""What a measurement found: its points, their comparison, and what a reader has to know."""

from __future__ import annotations

from dataclasses import dataclass

from engine.catalog.units import count
from engine.measuring.comparison import Comparison
from engine.measuring.plan import Plan
from engine.measuring.point import Point

_FAR_LENGTH = 0.1
_SHORT_ANSWER = 0.9
_MANY_A_READ = 1.5
_CACHED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Report:
    """``url`` and ``model`` as the server has them; ``started`` in ISO 8601, UTC.

    ``comparison`` is None where it is not known what the server runs; ``why_not`` then says why.
    """

    url: str
    model: str
    kind: str
    started: str
    plan: Plan
    points: tuple[Point, ...]
    comparison: Comparison | None = None
    why_not: str = ""

    @property
    def requests(self) -> int:
        return sum(len(point.replies) for point in self.points)

    @property
    def failed(self) -> int:
        return self.requests - sum(len(point.good) for point in self.points)

    @property
    def notes(self) -> list[str]:
        """How the numbers were taken, and what makes some of them less sure."""
        return [*_METHOD, *self.cautions]

    @property
    def cautions(self) -> list[str]:
        """What was not as it should be."""
        found: list[str] = []
        if self.failed:
            found.append(f"{self.failed:,} of {count(self.requests, 'request')} failed; only whole "
                         "answers are in the times.")  # fmt: skip
        for point in self.points:
            where = f"At {point.wanted_tokens:,} prompt tokens, {point.concurrency:,} at once: "
            found += [where + words for words in self._about(point)]
        if len(self.points) < len(list(self.plan.points)):
            found.append("The measurement was stopped before its last point.")
        return found

    def _about(self, point: Point) -> list[str]:
        found: list[str] = []
        if len(point.replies) < point.planned:
            found.append(
                f"ended after {len(point.replies):,} of {count(point.planned, 'request')}."
            )
        if not point.good:
            return found
        if not point.counted:
            found.append("the server does not count tokens: each chunk is taken for one.")
        if not all(reply.streamed for reply in point.good):
            found.append("the answer did not stream: the first token's time is the whole one's.")
        tokens, output = point.prompt_tokens, point.output_tokens
        if tokens is not None and abs(tokens / point.wanted_tokens - 1) > _FAR_LENGTH:
            found.append(f"prompts had {tokens:,.0f} tokens by the server's count.")
        if output is not None and output < _SHORT_ANSWER * self.plan.output_tokens:
            found.append(f"answers ended after {output:,.1f} tokens on average.")
        each, cached = point.tokens_a_read, point.cached_tokens
        if each is not None and each > _MANY_A_READ and point.itl is not None:
            found.append(f"{each:.1f} tokens came at once: gaps are longer than times a token.")
        if cached and cached > _CACHED_SHARE * point.wanted_tokens:
            found.append(f"{cached:,.0f} prompt tokens came from the server's cache.")
        return found


_METHOD = (
    "Times are the client's: from sending a request on an open connection, network included. "
    "Connecting is not in them.",
    "TTFT ends at the first chunk with text. ITL is, for each answer, the time from its first text "
    "to its last over the tokens between, by the server's count where it counts.",
    "A gap is the time between two reads that brought text, over all answers.",
    "Each of the clients keeps one request under way; they start one after the other. Tokens/s "
    "counts while all of them were busy.",
)
