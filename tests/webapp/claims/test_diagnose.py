"""Claims of lesson 12: each verdict can come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from engine.inference.messages import Accepted, Generate, Step, Token
from webapp.claims.bench import Bench, Run
from webapp.claims.checks import diagnose
from webapp.claims.claim import Verdict
from webapp.i18n import Language, texts

pytestmark = pytest.mark.anyio


@dataclass
class _Accepted:
    tokenize_ms: float = 0.2


@dataclass
class _Step:
    phase: str
    time_ms: float
    stages_ms: dict[str, float]


@dataclass
class _Token:
    detokenize_ms: float = 0.05


@dataclass
class _Info:
    model: dict[str, Any]


@dataclass
class PretendBench:
    """One run, as a test wants it."""

    learned_positions: int = 0
    times_embed: bool = True
    said: Any = field(default_factory=lambda: texts(Language.ENGLISH))

    @property
    def info(self) -> _Info:
        return _Info({"learned_positions": self.learned_positions})

    async def generate(self, request: Generate) -> Run:
        stages = {"embed": 0.1} if self.times_embed else {}
        run = Run()
        run.accepted = cast(Accepted, _Accepted())
        phases = ["prefill", *["decode"] * (request.max_tokens - 1)]
        run.steps = [cast(Step, _Step(phase, 5.0, stages)) for phase in phases]
        run.tokens = [cast(Token, _Token()) for _ in phases]
        return run


@pytest.mark.parametrize(
    ("bench", "verdict"),
    [
        (PretendBench(), Verdict.CAVEAT),
        (PretendBench(learned_positions=1024), Verdict.RIGHT),
        (PretendBench(times_embed=False), Verdict.WRONG),
    ],
)
async def test_stations(bench: PretendBench, verdict: Verdict) -> None:
    found = await diagnose.CHECKS["C19"](cast(Bench, bench))
    assert found.verdict is verdict
    values = [item.value for item in found.evidence]
    assert len(values) == 5
    assert ("—" in values) == (verdict is Verdict.WRONG)
    if verdict is not Verdict.WRONG:
        assert values[1:4] == ["100 µs", "4.90 ms", "55.0 ms"]


async def test_the_first_question_splits_the_causes() -> None:
    found = await diagnose.CHECKS["C25"](cast(Bench, PretendBench()))
    assert found.verdict is Verdict.CAVEAT
    start, stream, both, _ = (int(item.value) for item in found.evidence)
    assert start >= 3
    assert stream >= 2
    assert both >= 1


@pytest.mark.parametrize(
    ("split", "verdict"),
    [
        (diagnose.Split(("a",), ("b",), (), ()), Verdict.RIGHT),
        (diagnose.Split(("a",), (), ("b",), ()), Verdict.WRONG),
    ],
)
async def test_other_splits(
    monkeypatch: pytest.MonkeyPatch, split: diagnose.Split, verdict: Verdict
) -> None:
    monkeypatch.setattr(diagnose, "split_causes", lambda: split)
    found = await diagnose.CHECKS["C25"](cast(Bench, PretendBench()))
    assert found.verdict is verdict
