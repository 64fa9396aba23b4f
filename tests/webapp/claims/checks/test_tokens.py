"""Checks of the claims about tokens: what they find now, and that each verdict can happen."""

from __future__ import annotations

import pytest

from webapp.claims.checks import tokens
from webapp.claims.claim import Verdict
from webapp.i18n import Language, texts

SAID = texts(Language.ENGLISH)


def test_merging_is_right_but_the_word_is_cut_elsewhere() -> None:
    found = tokens._merging(SAID)
    assert found.verdict is Verdict.CAVEAT
    assert "un · h · appiness" in found.sentence
    assert "frequency" in found.caveat
    assert {evidence.value for evidence in found.evidence} >= {"un · h · appiness"}


def test_verdicts_on_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tokens._of_merging(True, ("un", "happi", "ness")) is Verdict.RIGHT
    assert tokens._of_merging(False, ("un", "happi", "ness")) is Verdict.WRONG
    monkeypatch.setattr(tokens, "_PIECES", ("un", "h", "appiness"))
    found = tokens._merging(SAID)
    assert (found.verdict, found.caveat) == (Verdict.RIGHT, "")


def test_one_id_of_the_article_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tokens._ids(SAID)
    assert found.verdict is Verdict.WRONG
    assert "2437, 857, 32278, 670, 30" in found.sentence
    assert found.caveat == (
        "4 of 5 ids are right. Where the article differs: 1374 (“ How”) → 857 (“ does”)."
    )
    monkeypatch.setattr(tokens, "_IDS", (2437, 857, 32278, 670, 30))
    right = tokens._ids(SAID)
    assert (right.verdict, right.caveat) == (Verdict.RIGHT, "")


def test_other_languages_take_more() -> None:
    found = tokens._languages(SAID)
    assert found.verdict is Verdict.RIGHT
    assert found.sentence.startswith("In 75 of 75 cases, 15 languages by 5 tokenizers")
    assert [evidence.value for evidence in found.evidence[:2]] == ["×22.51", "×6.73"]
    assert "Burmese" in found.evidence[0].name
    assert "缅甸语" in tokens._languages(texts(Language.CHINESE)).evidence[0].name


@pytest.mark.parametrize(
    ("more", "seconds", "verdict"),
    [
        (75, [0.1, 0.2], Verdict.RIGHT),
        (50, [0.1, 0.2], Verdict.CAVEAT),
        (30, [0.1, 0.2], Verdict.WRONG),
        (75, [0.2, 0.2], Verdict.WRONG),
    ],
)
def test_verdicts_on_languages(more: int, seconds: list[float], verdict: Verdict) -> None:
    assert tokens._of_languages(more, 75, seconds) is verdict
