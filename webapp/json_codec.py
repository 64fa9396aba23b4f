"""The only JSON reader and writer of the web process.

Reading is stricter than ``json.loads``: UTF-8 without a byte order mark, no ``NaN`` or
``Infinity``, no number beyond what a double or 64 bits hold, no duplicate keys, no lone
surrogates, bounded depth. Writing never fails on text or numbers that JSON cannot hold.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import TypeAlias, cast

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_Container: TypeAlias = "list[Json] | dict[str, Json]"
_ALWAYS_FINE = frozenset({type(None), bool, int, float})

MAX_DEPTH = 32
MAX_INT = 2**63 - 1

_SAFE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonRefused(Exception):
    """A document is not JSON, or not JSON that is accepted here.

    ``pointer`` is the JSON pointer (RFC 6901) of the value at fault; ``code`` names the rule.
    """

    def __init__(self, code: str, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.pointer = pointer


class _Unusable:
    """Stands in for a number that was refused while parsing, until its place is known."""

    __slots__ = ()


class _Duplicated(dict[str, "Json"]):
    """An object that named one of its members twice."""

    duplicate: str = ""


def loads(data: bytes | str) -> Json:
    """Parses one strict JSON document.

    Raises:
        JsonRefused: with the place and the rule, never with a part of the document.
    """
    text = data if isinstance(data, str) else _decode(data)
    if text.startswith("\ufeff"):
        raise JsonRefused("byte_order_mark", "Send UTF-8 without a byte order mark.")
    try:
        value = cast(
            Json,
            json.loads(
                text,
                parse_int=_parse_int,
                parse_float=_parse_float,
                parse_constant=_refuse_constant,
                object_pairs_hook=_object,
            ),
        )
    except RecursionError:
        raise _too_deep("") from None
    except ValueError as error:
        position = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise JsonRefused(
            "invalid_json", f"The document is not valid JSON (character {position})."
        ) from None
    _check(value)
    return value


def dumps(value: object) -> str:
    """Serialises to JSON that every parser accepts.

    Numbers that are not finite become ``null`` and lone surrogates U+FFFD: an answer that is
    under way must reach its reader even if a value in it went wrong.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(
            _finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    return replace_surrogates(text)


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates by U+FFFD and joins those that form a pair."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def has_surrogate(text: str) -> bool:
    """Whether ``text`` holds a code point that UTF-8 cannot carry."""
    return _SURROGATE.search(text) is not None


def pointer(parts: Iterable[str | int]) -> str:
    """The JSON pointer of a path, cut before the first member name that is not a plain word.

    Names that a client made up could carry anything; an answer never repeats them.
    """
    shown: list[str] = []
    for part in parts:
        if isinstance(part, str) and not _SAFE_KEY.fullmatch(part):
            break
        shown.append(f"/{part}")
    return "".join(shown)


def _decode(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data[:4]:
        raise JsonRefused("not_utf8", "Send the document in UTF-8, not UTF-16 or UTF-32.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise JsonRefused("not_utf8", "The document is not valid UTF-8.") from None


def _parse_int(digits: str) -> int | _Unusable:
    if len(digits) > 20:
        return _Unusable()
    number = int(digits)
    return number if -MAX_INT - 1 <= number <= MAX_INT else _Unusable()


def _parse_float(digits: str) -> float | _Unusable:
    number = float(digits)
    return number if math.isfinite(number) else _Unusable()


def _refuse_constant(name: str) -> _Unusable:
    return _Unusable()


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen: set[str] = set()
    duplicated = _Duplicated(result)
    for key, _ in pairs:
        if key in seen:
            duplicated.duplicate = key
            break
        seen.add(key)
    return duplicated


def _too_deep(place: str) -> JsonRefused:
    return JsonRefused("too_deep", f"Nest at most {MAX_DEPTH} arrays and objects.", place)


def _check(root: Json) -> None:
    """Walks the document once, without recursion, and raises at the first value refused."""
    _check_scalar(root, ())
    stack: list[tuple[_Container, tuple[str | int, ...]]] = []
    if isinstance(root, dict | list):
        stack.append((root, ()))
    while stack:
        container, path = stack.pop()
        if len(path) >= MAX_DEPTH:
            raise _too_deep(pointer(path[:8]))
        if isinstance(container, dict):
            _check_keys(container, path)
            members: Iterable[tuple[str | int, Json]] = container.items()
        else:
            members = enumerate(container)
        for key, value in members:
            # Exact types: the parser makes no others, and this loop sees every value.
            kind = type(value)
            if kind in _ALWAYS_FINE:
                continue
            if isinstance(value, dict | list):
                if value:
                    stack.append((value, (*path, key)))
                elif len(path) + 1 >= MAX_DEPTH:
                    raise _too_deep(pointer(path[:8]))
            else:
                _check_scalar(value, (*path, key))


def _check_keys(container: dict[str, Json], path: tuple[str | int, ...]) -> None:
    if isinstance(container, _Duplicated):
        raise JsonRefused(
            "duplicate_key",
            "An object names the same member twice; send it once.",
            pointer((*path, container.duplicate)),
        )
    for key in container:
        if _SURROGATE.search(key):
            raise JsonRefused(
                "lone_surrogate",
                "A member name holds a lone surrogate, which is not a character.",
                pointer(path),
            )


def _check_scalar(value: object, path: tuple[str | int, ...]) -> None:
    if isinstance(value, _Unusable):
        raise JsonRefused(
            "number_out_of_range",
            "Send a finite number: no NaN, no Infinity, integers within 64 bits.",
            pointer(path),
        )
    if isinstance(value, str) and _SURROGATE.search(value):
        raise JsonRefused(
            "lone_surrogate",
            "The text holds a lone surrogate, which is not a character.",
            pointer(path),
        )


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return {key: _finite(member) for key, member in members.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("list[object] | tuple[object, ...]", value)]
    return value
