"""Reads the JSON files beside the weights: capped, strict, and refused with a clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from engine.errors import FileFormatError

JsonObject = dict[str, Any]

MAX_CONFIG_BYTES = 2**20
MAX_INDEX_BYTES = 16 * 2**20
MAX_TOKENIZER_BYTES = 64 * 2**20


def read_json_object(path: Path, max_bytes: int) -> JsonObject:
    """The object in a JSON file. Raises ``FileFormatError`` where there is no file, it is larger
    than ``max_bytes``, or its content is refused by ``parse_json_object``."""
    return parse_json_object(read_text(path, max_bytes), path.name)


def read_text(path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file of at most ``max_bytes``; ``FileFormatError`` otherwise."""
    if not path.is_file():
        raise FileFormatError(f"{path.name} is missing")
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise FileFormatError(f"{path.name} is larger than the limit of {max_bytes} bytes")
    return content


def parse_json_object(content: bytes, what: str) -> JsonObject:
    """Strict JSON: UTF-8, no key twice in one object, no NaN or Infinity, bounded nesting."""
    try:
        value = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{what} is not valid JSON") from error
    if not isinstance(value, dict):
        raise FileFormatError(f"{what} does not hold a JSON object")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
