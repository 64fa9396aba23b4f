"""Strict reading of JSON that somebody pasted or uploaded."""

from __future__ import annotations

import json
from math import isfinite
from typing import NoReturn

from engine.catalog.importing.document import Object, as_object
from engine.refusals import refused

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
        raise refused("json_bytes", field=path, high=f"{MAX_BYTES:,}")
    try:
        value: object = json.loads(
            text.decode("utf-8") if isinstance(text, bytes) else text,
            object_pairs_hook=_without_duplicates,
            parse_int=_short_integer,
            parse_float=_finite,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        raise refused("no_json", field=path) from None
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
