"""C10: each verdict can come out, by what is drawn and how it was told."""

from __future__ import annotations

import asyncio
import base64
import math
import struct
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from engine.inference.messages import (
    Configure,
    Configured,
    Failed,
    Generate,
    Message,
    Probe,
    Probed,
    Token,
)
from tests.webapp.fake_engine import FakeEngine
from webapp.claims.bench import Bench
from webapp.claims.checks.sampling import REQUESTS, SAMPLES, check_sampling
from webapp.claims.claim import Verdict
from webapp.i18n import Language, texts

LOGITS = [math.log(0.5), math.log(0.3), math.log(0.2), -math.inf]


class Drawing(FakeEngine):
    """Draws the tokens that a test wants, in turn, and says a probability of each."""

    def __init__(self, tokens: list[int], logprobs: list[float]) -> None:
        super().__init__()
        self.tokens = tokens
        self.logprobs = logprobs
        self.count = 0

    async def generate(self, request: Generate) -> AsyncGenerator[Message, None]:
        assert request.n == SAMPLES
        assert request.temperature == 1.0
        async for message in super().generate(request):
            if not isinstance(message, Token):
                yield message
                continue
            for _ in range(request.n):
                token = self.tokens[self.count % len(self.tokens)]
                self.count += 1
                yield replace(message, id=token, logprob=self.logprobs[token])

    async def ask(self, request: Configure | Probe) -> Configured | Probed | Failed:
        packed = base64.b64encode(struct.pack("<4f", *LOGITS)).decode()
        top = [{"id": 0, "piece": " the", "logit": LOGITS[0], "logprob": LOGITS[0]}]
        document = {"top": top, "logits": {"shape": [4], "dtype": "float32", "data": packed}}
        return Probed(request.request_id, document)


def check(engine: FakeEngine) -> Any:
    nothing: Any = None
    bench = Bench(engine, nothing, nothing, nothing, texts(Language.ENGLISH))
    return asyncio.run(check_sampling(bench))


ROUNDED = [math.log(0.7), math.log(0.2), math.log(0.1), -math.inf]


@pytest.mark.parametrize(
    ("tokens", "logprobs", "verdict"),
    [
        ([0, 1, 0, 2], LOGITS, Verdict.RIGHT),
        ([0, 1, 0, 2], ROUNDED, Verdict.CAVEAT),
        ([0], LOGITS, Verdict.WRONG),
        ([1, 2], LOGITS, Verdict.WRONG),
        ([0, 1, 0, 3], [*LOGITS[:3], -9.0], Verdict.WRONG),
    ],
)
def test_verdicts(tokens: list[int], logprobs: list[float], verdict: Verdict) -> None:
    engine = Drawing(tokens, logprobs)
    found = check(engine)
    assert found.verdict is verdict
    assert engine.count == REQUESTS * SAMPLES
    assert f"{engine.count / 2:.1f}" in found.sentence
    assert found.evidence[0].value == "4; 1.000000"
    assert found.evidence[1].value == "3"
    assert found.caveat
