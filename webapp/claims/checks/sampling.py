"""Checks of what the lesson on choosing a token takes apart."""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import EngineError
from engine.inference.messages import Generate, Token
from webapp.claims.bench import Bench, new_id
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.lessons.lesson import Basis

PROMPT = "I opened the door and saw"
REQUESTS, SAMPLES = 8, 8
FAR = 4.0
"""Standard deviations of the counted share from its probability that chance does not explain."""
ROUNDED = 0.02
"""Probabilities of the drawn tokens that differ by more, on average, are another distribution."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What one run said about the token after a text, computed in float32.

    ``logits``: one for each token of the vocabulary, -inf for those that no text has.
    """

    logits: Sequence[float]
    likeliest: int
    piece: str
    logsumexp: float

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Scores:
        """From the answer to the probe ``next-token``."""
        packed = base64.b64decode(document["logits"]["data"])
        logits = [value for (value,) in struct.iter_unpack("<f", packed)]
        highest = max(logits)
        total = sum(math.exp(logit - highest) for logit in logits)
        top = document["top"][0]
        return cls(logits, int(top["id"]), str(top["piece"]), highest + math.log(total))

    def probability(self, token: int) -> float:
        """Of one token."""
        return math.exp(self.logits[token] - self.logsumexp)

    @property
    def possible(self) -> int:
        """How many tokens have a probability above 0."""
        return sum(logit > -math.inf for logit in self.logits)


async def check_sampling(bench: Bench) -> Finding:
    """C10: one run's scores as probabilities, beside what the service draws at temperature 1."""
    prompt, drawn = await _draw(bench)
    scores = Scores.of(
        await bench.probe(
            "next-token", {"token_ids": list(prompt), "position": len(prompt) - 1, "k": 1}
        )
    )
    n = len(drawn)
    count = sum(token.id == scores.likeliest for token in drawn)
    p = scores.probability(scores.likeliest)
    away = abs(count - n * p) / math.sqrt(n * p * (1 - p)) if 0 < p < 1 else 0.0
    impossible = sum(scores.probability(token.id) == 0 for token in drawn)
    said = bench.said
    if impossible or away > FAR:
        verdict = Verdict.WRONG
        sentence = said.gettext(
            "{n} tokens were drawn, and the likeliest came {count} times where {expected} were to "
            "be expected: not a draw from the model's distribution."
        )
    elif _difference(drawn, scores) > ROUNDED:
        verdict = Verdict.CAVEAT
        sentence = said.gettext(
            "{n} tokens were drawn, and the likeliest came {count} times of the {expected} to be "
            "expected. The probabilities are those of rounded weights, though, and not quite the "
            "model's."
        )
    else:
        verdict = Verdict.RIGHT
        sentence = said.gettext(
            "{n} tokens were drawn at temperature 1, and the likeliest came {count} times where "
            "{expected} were to be expected; the others came instead of it."
        )
    return Finding(
        verdict,
        sentence.format(n=n, count=count, expected=f"{n * p:.1f}"),
        _evidence(bench, scores, drawn),
        said.gettext(
            "A service may reshape the distribution before it draws: temperature, top-k, "
            "top-p, min-p, penalties. What comes is then no draw from the model's own "
            "probabilities, and at temperature 0 no draw at all."
        ),
    )


async def _draw(bench: Bench) -> tuple[tuple[int, ...], list[Token]]:
    """The prompt's ids, and one token a sample of many samples."""
    prompt: tuple[int, ...] = ()
    drawn: list[Token] = []
    for _ in range(REQUESTS):
        run = await bench.generate(
            Generate(new_id(), prompt=PROMPT, max_tokens=1, temperature=1.0, n=SAMPLES)
        )
        if run.accepted is None:
            raise EngineError("the engine did not take the prompt in")
        prompt = run.accepted.prompt_token_ids
        drawn += run.tokens
    return prompt, drawn


def _difference(drawn: Sequence[Token], scores: Scores) -> float:
    """Mean distance between what the service and the float32 model say of the drawn tokens."""
    told = [
        abs(math.exp(token.logprob) - scores.probability(token.id))
        for token in drawn
        if token.logprob is not None
    ]
    return sum(told) / len(told) if told else 0.0


def _evidence(bench: Bench, scores: Scores, drawn: Sequence[Token]) -> tuple[Evidence, ...]:
    said = bench.said
    pieces = {token.id: token.piece for token in drawn}
    counts = Counter(token.id for token in drawn).most_common(6)
    total = sum(math.exp(logit - scores.logsumexp) for logit in scores.logits)
    return (
        Evidence(
            said.gettext("scores from one run, and the sum of their probabilities"),
            f"{len(scores.logits):,}; {total:.6f}",
            Basis.MEASURED,
        ),
        Evidence(
            said.gettext("tokens that can come at all"), f"{scores.possible:,}", Basis.MEASURED
        ),
        Evidence(
            said.gettext("the likeliest, and its probability"),
            f"“{scores.piece}” {scores.probability(scores.likeliest):.3f}",
            Basis.MEASURED,
        ),
        Evidence(
            said.gettext("drawn most often"),
            ", ".join(f"“{pieces[token]}” {count}" for token, count in counts),
            Basis.MEASURED,
        ),
    )


CHECKS: dict[str, Check] = {"C10": check_sampling}
