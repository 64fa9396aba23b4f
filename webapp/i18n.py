"""Languages of the pages: which one a reader wants, and the texts in it.

English is the source. Other languages are gettext ``.po`` files under ``webapp/locale``, read when
the process starts, so there is nothing to compile by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from babel.messages.pofile import read_po

LOCALE_DIR = Path(__file__).resolve().parent / "locale"


class Language(StrEnum):
    """A language of the pages, by its BCP 47 tag (also the value of ``<html lang>``)."""

    ENGLISH = "en"
    CHINESE = "zh-Hans"

    @property
    def own_name(self) -> str:
        """The language's name in itself, as a reader who needs it would look for it."""
        return {"en": "English", "zh-Hans": "中文"}[self.value]

    @property
    def locale(self) -> str:
        """The name of the locale for gettext folders and Babel, e.g. ``zh_Hans``."""
        return self.value.replace("-", "_")


def _language_of_tag(tag: str) -> Language | None:
    primary = tag.strip().lower().replace("_", "-").split("-")[0]
    return {"en": Language.ENGLISH, "zh": Language.CHINESE}.get(primary)


def _accepted_tags(header: str) -> list[str]:
    """Tags of an ``Accept-Language`` header, most wanted first; malformed parts are left out."""
    weighted: list[tuple[float, int, str]] = []
    for position, part in enumerate(header[:500].split(",")):
        tag, _, quality = part.partition(";")
        try:
            weight = float(quality.strip().removeprefix("q=")) if quality.strip() else 1.0
        except ValueError:
            continue
        if 0 < weight <= 1:
            weighted.append((-weight, position, tag))
    return [tag for _, _, tag in sorted(weighted)]


def choose_language(asked: str | None, remembered: str | None, accept: str | None) -> Language:
    """The reader's language: asked for in the URL, else remembered, else accepted, else English."""
    for tag in (asked, remembered, *_accepted_tags(accept or "")):
        if tag and (language := _language_of_tag(tag)) is not None:
            return language
    return Language.ENGLISH


@dataclass(frozen=True)
class Texts:
    """The texts of one language. What has no translation is shown in English."""

    language: Language
    singles: Mapping[str, str]
    plurals: Mapping[str, str]

    def gettext(self, message: str) -> str:
        """``message`` in this language."""
        return self.singles.get(message, message)

    def ngettext(self, singular: str, plural: str, number: float) -> str:
        """The form for ``number``. Chinese has one form; English has two."""
        return self.plurals.get(singular) or (singular if number == 1 else plural)

    def forms(self, singular: str, plural: str) -> tuple[str, str]:
        """Both forms (one, other), for scripts that choose in the browser."""
        return self.ngettext(singular, plural, 1), self.ngettext(singular, plural, 2)


def catalogue_files(language: Language) -> list[Path]:
    """The ``.po`` files of a language, one for each part of the house; none of English."""
    return sorted((LOCALE_DIR / language.locale / "LC_MESSAGES").glob("*.po"))


def N_(message: str) -> str:  # noqa: N802 - gettext's own name for it
    """Marks a text that is translated where it is shown."""
    return message


@cache
def texts(language: Language) -> Texts:
    """The texts of ``language``, read once, from all of its files."""
    singles: dict[str, str] = {}
    plurals: dict[str, str] = {}
    for path in catalogue_files(language):
        with path.open("rb") as file:
            for message in read_po(file, locale=language.locale):
                if not message.id or message.fuzzy or not message.string:
                    continue
                if isinstance(message.id, str):
                    singles[message.id] = str(message.string)
                else:
                    plurals[message.id[0]] = message.string[0]
    return Texts(language, singles, plurals)
