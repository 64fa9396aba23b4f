"""Why a page has no answer, in the reader's words."""

from __future__ import annotations

from typing import NamedTuple

from engine.errors import EngineError
from engine.refusals import sentence
from engine.refusals_of_predictions import REFUSED_PREDICTIONS
from webapp.i18n import Language, Texts


class RefusalWords(NamedTuple):
    """The field at fault, if one is, and the reason; ``lang`` is the language it is in."""

    field: str | None
    text: str
    lang: str


def refusal_words(error: EngineError, said: Texts) -> RefusalWords:
    """A refusal in the language of ``said``; in English where it has no code."""
    if error.reason is None:
        return RefusalWords(error.field, error.message, Language.ENGLISH.value)
    words = said.gettext(sentence(error.reason))
    text = words.format_map({"field": error.field, **error.values})
    return RefusalWords(error.field, text, said.language.value)


def refusal_messages() -> set[str]:
    """The engine's sentences about predictions, for translators."""
    return set(REFUSED_PREDICTIONS.values())
