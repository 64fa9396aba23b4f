"""Strict reading of JSON that somebody pasted or uploaded."""

from __future__ import annotations

import json
from math import isfinite
from typing import NoReturn

from engine.catalog.importing.document import Object, as_object
from engine.errors import InvalidRequest

MAX_BYTES = 2**20
_MAX_DIGITS = 20


def parse_object(text: str | bytes, path: str) -> Object:
    """The JSON object in a text: UTF-8, no key twice, no NaN or Infinity, bounded throughout.

    Raises:
        InvalidRequest: it is larger than ``MAX_BYTES``, not such JSON, or no object (field
            ``path``).
    """
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise InvalidRequest(f"{path}: give at most {MAX_BYTES:,} bytes", field=path)
    try:
        value: object = json.loads(
            text.decode("utf-8") if isinstance(text, bytes) else text,
            object_pairs_hook=_without_duplicates,
            parse_int=_short_integer,
            parse_float=_finite,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        raise InvalidRequest(
            f"{path}: is not JSON in UTF-8 with each key once and finite numbers", field=path
        ) from None
    return as_object(value, path)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value


def _short_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("an integer is too long")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
