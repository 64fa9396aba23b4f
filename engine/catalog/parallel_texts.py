"""The same text in many languages: articles of the Universal Declaration of Human Rights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent / "data" / "texts" / "udhr.json"


@dataclass(frozen=True, slots=True)
class ParallelText:
    """All articles in one language, NFC. ``tag``: BCP 47; ``direction``: ltr or rtl."""

    tag: str
    name: str
    own_name: str
    direction: str
    articles: tuple[str, ...]


@cache
def _document() -> Mapping[str, Any]:
    return json.loads(DATA.read_text("utf-8"))


def parallel_source() -> str:
    """Where the texts are from."""
    return _document()["source"]


@cache
def parallel_texts() -> tuple[ParallelText, ...]:
    """The languages, English first."""
    languages: list[dict[str, Any]] = _document()["languages"]
    return tuple(
        ParallelText(
            tag=language["tag"],
            name=language["name"],
            own_name=language["own_name"],
            direction=language["direction"],
            articles=tuple(language["articles"]),
        )
        for language in languages
    )
