"""Every claim of the article has a check and a lesson that takes it apart."""

from __future__ import annotations

from webapp.claims.catalogue import CHECKS, CLAIMS
from webapp.claims.claim import Effort
from webapp.lessons.catalogue import get_lesson


def test_all_are_there() -> None:
    assert [claim.id for claim in CLAIMS] == [f"C{n:02}" for n in range(1, 26)]
    assert CHECKS.keys() == {claim.id for claim in CLAIMS}


def test_each_belongs_to_a_lesson_that_shows_it() -> None:
    for claim in CLAIMS:
        lesson = get_lesson(claim.lesson)
        assert lesson is not None, claim.id
        assert claim.id in lesson.claims


def test_who_must_wait_is_told_how_long() -> None:
    for claim in CLAIMS:
        assert (claim.seconds > 0) == (claim.effort is Effort.ENGINE), claim.id
        assert claim.seconds <= 20, "a check takes at most some twenty seconds"
