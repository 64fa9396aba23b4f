"""Reading values out of a JSON document that someone may have edited: of the right type or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast


def as_object(value: object) -> Mapping[str, object]:
    """An object's entries. Raises ``TypeError`` for anything else, as all of these do."""
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return cast("dict[str, object]", value)


def as_list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise TypeError("a list was expected")
    return cast("list[object]", value)


def as_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return value


def as_number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError("a number was expected")
    return value


def as_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("true or false was expected")
    return value


def as_numbers(value: object) -> Mapping[str, float]:
    """An object whose values are numbers."""
    return MappingProxyType({key: as_number(item) for key, item in as_object(value).items()})
