"""What the pages of the lessons show: one typed view model each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import ascii_lowercase

from webapp.claims.catalogue import CHECKS, CLAIMS
from webapp.claims.claim import Claim
from webapp.i18n import Texts
from webapp.lessons.catalogue import LESSONS, neighbours
from webapp.lessons.glossary import known_terms
from webapp.lessons.lesson import Figure, Lesson, SourceCode
from webapp.pages.lesson_texts import LESSON_TEXTS
from webapp.pages.script_texts import script_texts, translated


@dataclass(slots=True)
class Notes:
    """Sources of the figures that a page has shown so far, in order: its footnotes.

    A template calls ``mark`` where it shows a figure, and lists ``sources`` at its end.
    """

    figures: Mapping[str, Figure]
    sources: list[Figure] = field(default_factory=list[Figure])

    def __getitem__(self, name: str) -> Figure:
        return self.figures[name]

    def mark(self, figure: Figure) -> int:
        """The number of the figure's footnote, from 1."""
        for number, known in enumerate(self.sources, start=1):
            if known.source == figure.source and known.basis == figure.basis:
                return number
        self.sources.append(figure)
        return len(self.sources)

    def letter(self, figure: Figure) -> str:
        """The footnote's sign: a letter, since a raised digit behind a number is a power."""
        return ascii_lowercase[self.mark(figure) - 1]


@dataclass(frozen=True, slots=True)
class LessonView:
    """One lesson's page. ``texts`` and the glossary's ``terms`` go to its scripts."""

    lesson: Lesson
    before: Lesson | None
    after: Lesson | None
    claims: tuple[Claim, ...]
    notes: Notes
    texts: Mapping[str, str | tuple[str, str]]
    terms: Mapping[str, Mapping[str, object]]

    @property
    def total(self) -> int:
        """How many lessons there are."""
        return len(LESSONS)

    @property
    def styles(self) -> tuple[str, ...]:
        """The lesson's own style sheets, below ``static``."""
        return tuple(f"css/lessons/{name}.css" for name in self.lesson.styles)

    @property
    def scripts(self) -> tuple[str, ...]:
        """The lesson's own modules, below ``static``."""
        return tuple(f"js/lessons/{name}.js" for name in self.lesson.scripts)


def lesson_view(lesson: Lesson, said: Texts) -> LessonView:
    """The page of ``lesson``."""
    before, after = neighbours(lesson)
    claims = tuple(c for c in CLAIMS if c.id in lesson.claims and c.id in CHECKS)
    texts = {**translated(LESSON_TEXTS, said), **translated(lesson.texts, said)}
    wanted = (*_COMMON, *lesson.borrows)
    common = {key: text for key, text in script_texts(said).items() if key.startswith(wanted)}
    return LessonView(
        lesson,
        before,
        after,
        claims,
        Notes(lesson.figures()),
        {**common, **texts},
        known_terms(said),
    )


_COMMON = (
    "api.",
    "error.",
    "refusal.",
    "kind.",
    "status.",
    "opening.",
    "notice.",
    "done.",
    "prefill",
    "decode",
    "recompute",
    "mixed",
)
"""Texts of the first page that lessons say as well, by how their keys begin."""


@dataclass(frozen=True, slots=True)
class LearnView:
    """The table of contents."""

    lessons: tuple[Lesson, ...]
    texts: Mapping[str, str | tuple[str, str]]

    @property
    def minutes(self) -> int:
        """All lessons together."""
        return sum(lesson.teaching.minutes for lesson in self.lessons)

    @property
    def tasks(self) -> dict[str, int]:
        """How many tasks each lesson has, by slug."""
        return {lesson.slug: len(lesson.tasks) for lesson in self.lessons}


def learn_view(said: Texts) -> LearnView:
    """The table of contents."""
    return LearnView(LESSONS, translated(LESSON_TEXTS, said))


@dataclass(frozen=True, slots=True)
class SourceView:
    """A definition of this project that a lesson points to."""

    path: str
    name: str
    does: str
    code: SourceCode

    @property
    def lines(self) -> list[tuple[int, str]]:
        """Numbered lines."""
        return list(enumerate(self.code.text.splitlines(), start=self.code.first))
