"""C20: every verdict can come out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webapp.claims.checks.serving import Served, judge_c20
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
