"""Typed reading of the values of a Hugging Face ``config.json``; errors name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import FileFormatError


def integer(document: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A whole number; ``default`` where the key is missing or null."""
    value = document.get(key)
    value = default if value is None else value
    if type(value) is not int:
        raise FileFormatError(f"config.json: {key} is missing or not a whole number")
    return value


def number(document: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A number, as a float; ``default`` where the key is missing."""
    value = document.get(key, default)
    if type(value) not in (int, float):
        raise FileFormatError(f"config.json: {key} is missing or not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise FileFormatError(f"config.json: {key} is too large") from error


def number_or_none(
    document: Mapping[str, Any], key: str, default: float | None = None
) -> float | None:
    """A number or null; ``default`` where the key is missing."""
    return None if document.get(key, default) is None else number(document, key, default)


def flag(document: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """True or false; ``default`` where the key is missing."""
    value = document.get(key, default)
    if type(value) is not bool:
        raise FileFormatError(f"config.json: {key} is neither true nor false")
    return value


def token_ids(document: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """One token id or a list of them, each once; none where the key is missing or null."""
    value = document.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(token) is not int for token in values):
        raise FileFormatError(f"{key} is not a token id or a list of them")
    return tuple(dict.fromkeys(values))
