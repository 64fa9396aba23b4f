"""Runs of the serving page as questions that a process of its own can answer.

The question goes there as JSON values. What comes back are the page's own frozen dataclasses,
pickled by our own code in a process that we started: nothing that a reader sends is unpickled.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, cast

from webapp.i18n import Language, texts
from webapp.pages.serving_question import ServingQuestion
from webapp.pages.serving_view import KneeAnswer, ServingAnswer, knee_answer, serving_answer


def _shown(table: dict[object, object]) -> MappingProxyType[object, object]:
    return MappingProxyType(table)


def _reduced(table: MappingProxyType[object, object]) -> tuple[Any, ...]:
    return _shown, (dict(table),)


# Tables of the simulator's dataclasses are read-only views, which pickle does not know by itself.
copyreg.pickle(MappingProxyType, _reduced)


def body_of(question: ServingQuestion, language: Language) -> dict[str, object]:
    """The question, and the language that its answer is put into, as JSON values."""
    return {"question": asdict(question), "language": language.value}


def make_serving(body: Mapping[str, object]) -> bytes:
    """The ``ServingAnswer`` to a ``body_of``, for ``read_serving``."""
    question, language = _asked(body)
    return pickle.dumps(serving_answer(question, texts(language)))


def make_knee(body: Mapping[str, object]) -> bytes:
    """The ``KneeAnswer`` to a ``body_of``, for ``read_knee``."""
    question, language = _asked(body)
    return pickle.dumps(knee_answer(question, texts(language)))


def read_serving(made: bytes) -> ServingAnswer:
    """What ``make_serving`` made."""
    return cast(ServingAnswer, pickle.loads(made))  # noqa: S301 - from our own process


def read_knee(made: bytes) -> KneeAnswer:
    """What ``make_knee`` made."""
    return cast(KneeAnswer, pickle.loads(made))  # noqa: S301 - from our own process


def _asked(body: Mapping[str, object]) -> tuple[ServingQuestion, Language]:
    values = cast("dict[str, Any]", body["question"])
    return ServingQuestion(**values), Language(cast(str, body["language"]))
