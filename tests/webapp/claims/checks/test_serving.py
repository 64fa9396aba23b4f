"""C20: every verdict can come out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.webapp.fake_engine import FakeEngine
from webapp.claims.bench import Bench
from webapp.claims.checks.serving import PEOPLE, Served, check_c20, judge_c20
from webapp.claims.claim import Verdict
from webapp.i18n import Language, texts

SAID = texts(Language.ENGLISH)
GOOD = Served(
    alone=100,
    together=550,
    drafted=40,
    accepted=30,
    same=True,
    plain_ms=500,
    drafts_ms=300,
    cached_tokens=48,
)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.RIGHT),
        ({"drafts_ms": 600.0}, Verdict.CAVEAT),
        ({"accepted": 0}, Verdict.CAVEAT),
        ({"cached_tokens": 0}, Verdict.CAVEAT),
        ({"together": 120.0}, Verdict.WRONG),
        ({"same": False}, Verdict.WRONG),
    ],
)
def test_c20(changed: dict[str, float | bool], verdict: Verdict) -> None:
    finding = judge_c20(replace(GOOD, **changed), (0.007, 0.009), SAID)
    assert finding.verdict is verdict
    told = [item.value for item in finding.evidence]
    assert told[1] == ("0 / 40" if changed.get("accepted") == 0 else "30 / 40")
    assert told[4] == "7.00 ms → 9.00 ms"


def test_the_gain_is_told() -> None:
    assert "5.5 times the tokens" in judge_c20(GOOD, (0.007, 0.009), SAID).sentence


def test_it_asks_the_engine() -> None:
    engine = FakeEngine()
    nothing: Any = None
    finding = asyncio.run(check_c20(Bench(engine, nothing, nothing, nothing, SAID)))
    # That engine gives everybody a token a millisecond, drafts nothing and keeps nothing.
    assert finding.verdict is Verdict.CAVEAT
    assert f"Here {PEOPLE} people together get 8.0 times" in finding.sentence
    methods = [r.speculation.method for r in engine.requests if r.speculation]
    assert methods == ["ngram"]
    assert [r.prefix_cache for r in engine.requests].count(True) == 2
