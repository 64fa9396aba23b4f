"""Search over the lessons, in the reader's language.

A lesson's page is rendered as everyone sees it, and its words are taken from there, section by
section, so nothing can be found that is not on the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser

MAX_QUERY = 100
MAX_RESULTS = 20
_AROUND = 70
_HEADING_WEIGHT = 5
_SKIPPED = frozenset(
    {"script", "noscript", "style", "select", "textarea", "button", "pre", "nav", "svg"}
)


@dataclass(slots=True)
class Section:
    """A part of a lesson's page: its place in the page, its heading, and its words."""

    slug: str
    title: str
    anchor: str
    heading: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A section that was found: ``before``, ``match`` and ``after`` are words around the place."""

    slug: str
    title: str
    anchor: str
    heading: str
    before: str
    match: str
    after: str


class _Sections(HTMLParser):
    """Cuts a page's main part into its sections with an id."""

    def __init__(self, slug: str, title: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found = [Section(slug, title, "", title)]
        self._skipping = 0
        self._in_main = False
        self._in_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "main":
            self._in_main = True
        elif tag in _SKIPPED:
            self._skipping += 1
        elif tag == "section":
            top = self.found[0]
            self.found.append(Section(top.slug, top.title, named.get("id") or ""))
        elif tag == "h2":
            self._in_heading = True
        else:
            self._add(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "main":
            self._in_main = False
        elif tag in _SKIPPED:
            self._skipping = max(0, self._skipping - 1)
        elif tag == "h2":
            self._in_heading = False

    def handle_data(self, data: str) -> None:
        if self._in_heading and self._in_main:
            self.found[-1].heading += data
        else:
            self._add(data)

    def _add(self, data: str) -> None:
        if self._in_main and not self._skipping:
            self.found[-1].text += data


def sections_of(slug: str, title: str, page: str) -> list[Section]:
    """The sections of a lesson's rendered page, white space made single."""
    parser = _Sections(slug, title)
    parser.feed(page)
    parser.close()
    for section in parser.found:
        section.heading = " ".join(section.heading.split())
        section.text = " ".join(section.text.split())
    return [section for section in parser.found if section.text or section.heading]


@dataclass(slots=True)
class LessonIndex:
    """All sections of all lessons in one language."""

    sections: list[Section] = field(default_factory=list[Section])

    def add(self, sections: Iterable[Section]) -> None:
        """Take in a lesson."""
        self.sections.extend(sections)

    def search(self, query: str) -> list[Hit]:
        """Sections that hold all words of ``query``, those with most of them first, a word of a
        heading counting ``_HEADING_WEIGHT`` times; at most ``MAX_RESULTS``."""
        words = query[:MAX_QUERY].casefold().split()
        if not words:
            return []
        scored: list[tuple[int, int, Section]] = []
        for place, section in enumerate(self.sections):
            heading, text = section.heading.casefold(), section.text.casefold()
            counts = [_HEADING_WEIGHT * heading.count(w) + text.count(w) for w in words]
            if all(counts):
                scored.append((-sum(counts), place, section))
        return [_hit(section, words[0]) for _, _, section in sorted(scored)[:MAX_RESULTS]]


def _hit(section: Section, word: str) -> Hit:
    found = re.search(re.escape(word), section.text, re.IGNORECASE)
    start, end = found.span() if found else (0, 0)
    low, high = max(0, start - _AROUND), min(len(section.text), end + _AROUND)
    return Hit(
        section.slug,
        section.title,
        section.anchor,
        section.heading,
        ("…" if low else "") + section.text[low:start],
        section.text[start:end],
        section.text[end:high] + ("…" if high < len(section.text) else ""),
    )
