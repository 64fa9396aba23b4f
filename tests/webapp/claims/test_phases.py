"""Claims of lesson 7: each verdict can come out, by what a bench measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from engine.inference.messages import Accepted, Done, Generate, Step
from webapp.claims.bench import Bench, Run
from webapp.claims.checks.phases import CHECKS
from webapp.claims.claim import Verdict
from webapp.i18n import Language, texts


@dataclass
class PretendBench:
    """Runs prompts on a machine whose steps take what a test says: (tokens, context) -> ms.

    A token is a character. ``idle`` passes between two decode steps.
    """

    prefill: float
    per_token: float
    decode: float
    per_answer: float = 0.0
    idle: float = 0.0
    per_output: float = 0.0
    said: Any = field(default_factory=lambda: texts(Language.ENGLISH))

    async def generate(self, request: Generate) -> Run:
        prompt = len(request.prompt or "")
        run = Run()
        run.accepted = cast(Accepted, _Accepted(tuple(range(prompt))))
        clock = 0.0
        first = self.prefill + self.per_token * prompt
        run.steps.append(_step("prefill", clock, first))
        clock += first
        gaps: list[float] = []
        for index in range(request.max_tokens - 1):
            clock += self.idle
            time = self.decode + self.per_answer * request.n + self.per_output * index
            run.steps.append(_step("decode", clock, time))
            clock += time
            gaps.append(time + self.idle)
        run.done = cast(Done, _Done(first, tuple(gaps)))
        return run


@dataclass
class _Accepted:
    prompt_token_ids: tuple[int, ...]


@dataclass
class _Done:
    ttft_ms: float
    itl_ms: tuple[float, ...]


@dataclass
class _Step:
    phase: str
    start_ms: float
    time_ms: float


def _step(phase: str, start_ms: float, time_ms: float) -> Step:
    return cast(Step, _Step(phase, start_ms, time_ms))


READS = {"prefill": 10.0, "decode": 10.0}

CASES: tuple[tuple[str, Mapping[str, float], Verdict], ...] = (
    ("C11", {**READS, "per_token": 0.0}, Verdict.WRONG),
    ("C11", {**READS, "per_token": 0.5}, Verdict.CAVEAT),
    ("C11", {"prefill": 0.0, "decode": 1.0, "per_token": 1.0}, Verdict.RIGHT),
    ("C12", {**READS, "per_token": 0.1, "per_answer": 0.2}, Verdict.RIGHT),
    ("C12", {"prefill": 1.0, "decode": 1.0, "per_token": 0.1, "per_answer": 2.0}, Verdict.CAVEAT),
    ("C12", {"prefill": 0.0, "decode": 0.0, "per_token": 0.1, "per_answer": 2.0}, Verdict.WRONG),
    ("C21", {**READS, "per_token": 0.5}, Verdict.CAVEAT),
    ("C21", {**READS, "per_token": 0.0}, Verdict.WRONG),
    ("C21", {**READS, "per_token": 0.5, "per_output": 1.0}, Verdict.RIGHT),
    ("C24", {**READS, "per_token": 0.5, "idle": 0.5}, Verdict.CAVEAT),
    ("C24", {**READS, "per_token": 0.5, "idle": 30.0}, Verdict.RIGHT),
)


@pytest.mark.anyio
@pytest.mark.parametrize(("claim", "machine", "verdict"), CASES)
async def test_verdicts(claim: str, machine: Mapping[str, float], verdict: Verdict) -> None:
    found = await CHECKS[claim](cast(Bench, PretendBench(**machine)))
    assert found.verdict is verdict
    assert found.sentence
    assert found.evidence
    assert bool(found.caveat) == (verdict is Verdict.CAVEAT)
