"""C01: each verdict can come out, by what the service and the loop by hand give."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
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
    Step,
)
from tests.webapp.fake_engine import FakeEngine
from webapp.claims.bench import Bench
from webapp.claims.checks.loop import TOKENS, check_loop
from webapp.claims.claim import Verdict
from webapp.i18n import Language, texts


class Scripted(FakeEngine):
    """Answers with its prompt; a probe says what comes next there, save at some places."""

    def __init__(self, wrong_at: tuple[int, ...] = (), steps: int = TOKENS) -> None:
        super().__init__()
        self.wrong_at = wrong_at
        self.steps = steps
        self.looks = 0

    async def generate(self, request: Generate) -> AsyncGenerator[Message, None]:
        told = 0
        async for message in super().generate(request):
            told += isinstance(message, Step)
            if not isinstance(message, Step) or told <= self.steps:
                yield message

    async def ask(self, request: Configure | Probe) -> Configured | Probed | Failed:
        assert isinstance(request, Probe)
        ids = request.arguments["token_ids"]
        assert request.arguments["position"] == len(ids) - 1
        place = self.looks
        self.looks += 1
        # The fake's answer is its prompt again, a character a token.
        token = 0 if place in self.wrong_at else ids[place]
        top = [{"id": token, "piece": chr(token), "logit": 1.0, "logprob": math.log(0.5)}]
        return Probed(request.request_id, {"top": top})


def bench(engine: FakeEngine) -> Bench:
    """Only the engine is looked at."""
    nothing: Any = None
    return Bench(engine, nothing, nothing, nothing, texts(Language.ENGLISH))


@pytest.mark.parametrize(
    ("engine", "verdict"),
    [
        (Scripted(), Verdict.RIGHT),
        (Scripted(wrong_at=(2,)), Verdict.CAVEAT),
        (Scripted(wrong_at=(0, 1, 2, 3)), Verdict.WRONG),
        (Scripted(steps=1), Verdict.WRONG),
    ],
)
def test_verdicts(engine: Scripted, verdict: Verdict) -> None:
    found = asyncio.run(check_loop(bench(engine)))
    assert found.verdict is verdict
    assert engine.looks == TOKENS
    assert str(TOKENS) in found.sentence
    assert found.evidence[2].value == " ".join(["0.50"] * TOKENS)
