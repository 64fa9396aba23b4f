"""What a claim is, and what a check of it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from webapp.claims.bench import Bench
from webapp.i18n import N_
from webapp.lessons.lesson import Basis


class Verdict(StrEnum):
    """How the article's statement stands beside what was found."""

    RIGHT = "right"
    CAVEAT = "caveat"
    WRONG = "wrong"

    @property
    def label(self) -> str:
        """In words (English source of the translation)."""
        return {
            "right": N_("right"),
            "caveat": N_("right, with a caveat"),
            "wrong": N_("wrong"),
        }[self.value]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that was found: what it is, its value with unit, and what kind of number.

    Texts are in the reader's language. ``source``: a formula, an entry of a catalogue or a
    publication; empty for what was just measured.
    """

    name: str
    value: str
    basis: Basis
    source: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: the verdict, one or two sentences why, and the numbers.

    ``caveat``: where the statement does not hold, or what is right instead; empty if nothing.
    """

    verdict: Verdict
    sentence: str
    evidence: tuple[Evidence, ...]
    caveat: str = ""


Check = Callable[[Bench], Awaitable[Finding]]


class Effort(StrEnum):
    """What a check takes."""

    INSTANT = "instant"
    """Computed: shown as soon as the page is."""
    ENGINE = "engine"
    """Runs the real model for some seconds: on request only."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the article, in our words; ``lesson`` is where it is taken apart.

    ``seconds``: what a check of effort ``engine`` took, measured on two cores of a quiet machine
    and rounded up; readers see it before they ask.
    """

    id: str
    says: str
    lesson: str
    effort: Effort
    seconds: int = 0
