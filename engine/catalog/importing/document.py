"""Reads an untrusted JSON object key by key; what nobody asked for is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, cast

from engine.errors import InvalidRequest, UnsupportedModel

MAX_DEPTH = 16
MAX_VALUES = 100_000
MAX_TEXT = 4096
"""Longest text and longest key anywhere in a document, in characters."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")

Object = Mapping[str, object]


class ConfigDocument:
    """One JSON object with typed access that remembers what was read.

    ``path`` says where the object stands ("config", "config.text_config"). A key whose value is
    null counts as absent. Errors name the key and never repeat its value.

    ``understood`` are the keys that shaped the model, ``ignored`` those known to have no part in
    its cost, ``defaults`` the values that absent keys have by definition of their model type.
    """

    def __init__(self, values: Object, path: str) -> None:
        self._values = values
        self.path = path
        self.understood: list[str] = []
        self.ignored: list[str] = []
        self.defaults: dict[str, int | bool | str | None] = {}

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def has_key(self, key: str) -> bool:
        """Whether the key is there, be its value null."""
        return key in self._values

    def field(self, key: str) -> str:
        """The key with the path to it, as errors name it."""
        return f"{self.path}.{key}" if _PLAIN_KEY.fullmatch(key) else self.path

    def wrong(self, key: str, wanted: str) -> NoReturn:
        """Refuse a value of the wrong type or outside its range."""
        raise InvalidRequest(f"{self.field(key)}: {wanted}", field=self.field(key))

    def refuse(self, key: str, reason: str) -> NoReturn:
        """Refuse a value that asks for something that is not understood."""
        raise UnsupportedModel(f"{self.field(key)}: {reason}", field=self.field(key))

    def size(self, key: str, high: int, *, low: int = 1, default: int | None = None) -> int:
        """A whole number from ``low`` to ``high``.

        Raises:
            InvalidRequest: it is missing without a default, not a whole number, or out of range.
        """
        if key not in self:
            if default is None:
                self.wrong(key, f"is missing; give a whole number from {low:,} to {high:,}")
            self.defaults[key] = default
            return default
        value = self._take(key)
        if type(value) is not int or not low <= value <= high:
            self.wrong(key, f"give a whole number from {low:,} to {high:,}")
        return value

    def optional_size(self, key: str, high: int) -> int | None:
        """A whole number from 1 to ``high``, or None where the key is absent or null."""
        return self.size(key, high) if key in self else None

    def number(self, key: str, high: float) -> float:
        """A number above 0, at most ``high``.

        Raises:
            InvalidRequest: it is missing, no number, or out of range.
        """
        value = self._take(key) if key in self else None
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= high:
            self.wrong(key, f"give a number above 0, at most {high:,.0f}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            InvalidRequest: it is something else.
        """
        if key not in self:
            self.defaults[key] = default
            return default
        value = self._take(key)
        if type(value) is not bool:
            self.wrong(key, "give true or false")
        return value

    def text(self, key: str, choices: Sequence[str], *, default: str | None = None) -> str:
        """One of ``choices``.

        Raises:
            InvalidRequest: it is missing without a default or not a text.
            UnsupportedModel: it is another text.
        """
        if key not in self:
            if default is None:
                self.wrong(key, f"is missing; give one of {', '.join(choices)}")
            if default:
                self.defaults[key] = default
            return default
        value = self._take(key)
        if not isinstance(value, str):
            self.wrong(key, "give a text")
        if value not in choices:
            self.refuse(key, f"only {', '.join(choices)} is understood")
        return value

    def plain_text(self, key: str) -> str:
        """Any text; "" where the key is absent."""
        if key not in self:
            return ""
        value = self._take(key)
        if not isinstance(value, str):
            self.wrong(key, "give a text")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts, or None where the key is absent."""
        if key not in self:
            return None
        values = self._take(key)
        if not isinstance(values, list | tuple):
            self.wrong(key, "give a list of texts")
        items = cast("Sequence[object]", values)
        if not all(isinstance(item, str) for item in items):
            self.wrong(key, "give a list of texts")
        return tuple(cast("Sequence[str]", items))

    def sizes(self, key: str, high: int) -> tuple[int, ...] | None:
        """A list of whole numbers from 0 to ``high``, or None where the key is absent."""
        if key not in self:
            return None
        values = self._take(key)
        if not isinstance(values, list | tuple):
            self.wrong(key, "give a list of whole numbers")
        items = cast("Sequence[object]", values)
        if not all(type(item) is int and 0 <= item <= high for item in items):
            self.wrong(key, f"give a list of whole numbers from 0 to {high:,}")
        return tuple(cast("Sequence[int]", items))

    def inner(self, key: str) -> ConfigDocument | None:
        """The object under a key, or None where it is absent."""
        if key not in self:
            return None
        value = self._take(key)
        if not isinstance(value, Mapping):
            self.wrong(key, "give an object")
        return ConfigDocument(cast("Object", value), self.field(key))

    def expect(self, key: str, *allowed: object) -> None:
        """Accept a key only with a value under which the model is the usual one.

        Raises:
            UnsupportedModel: it has another value.
        """
        if key not in self:
            return
        value = self._take(key)
        # True == 1 in Python: types are compared too.
        if not any(type(value) is type(item) and value == item for item in allowed):
            self.refuse(key, "asks for a part that is not understood")

    def default(self, key: str, value: int) -> None:
        """Give an absent key the value that its type of model defines for it."""
        if key not in self:
            self._values = {**self._values, key: value}
            self.defaults[key] = value

    def ignore(self, keys: Iterable[str]) -> None:
        """Accept keys that have no part in what a step costs, whatever they say."""
        self.ignored.extend(key for key in keys if key in self._values)

    def done(self) -> None:
        """Refuse what was not read: a key that might change the model must not vanish.

        Raises:
            UnsupportedModel: names the first such key.
        """
        known = {*self.understood, *self.ignored}
        for key, value in self._values.items():
            # null, false and empty lists or objects switch a feature off, whatever it is.
            if key in known or value is None or value is False or value == [] or value == {}:
                continue
            if _PLAIN_KEY.fullmatch(key):
                self.refuse(key, "this key is not understood for this type of model")
            raise UnsupportedModel(
                f"{self.path}: a key that is not understood, with an unusual name", field=self.path
            )

    def _take(self, key: str) -> object:
        if key not in self.understood:
            self.understood.append(key)
        return self._values[key]


def as_object(value: object, path: str) -> Object:
    """The value as a JSON object, bounded in depth, number of values and length of texts.

    Raises:
        InvalidRequest: it is no object, or larger than these bounds (field ``path``).
    """
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{path}: give a JSON object", field=path)
    count = 0
    level: list[object] = [cast("object", value)]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for item in level:
            count += 1
            if isinstance(item, str) and len(item) > MAX_TEXT:
                raise InvalidRequest(f"{path}: a text in it is too long", field=path)
            inner.extend(_members(item, path))
        if count + len(inner) > MAX_VALUES:
            raise InvalidRequest(f"{path}: has more than {MAX_VALUES:,} values", field=path)
        if not inner:
            return cast("Object", value)
        level = inner
    raise InvalidRequest(f"{path}: is nested more than {MAX_DEPTH} levels deep", field=path)


def _members(item: object, path: str) -> Iterable[object]:
    if isinstance(item, Mapping):
        entries = cast("Mapping[object, object]", item)
        if not all(isinstance(key, str) and len(key) <= MAX_TEXT for key in entries):
            raise InvalidRequest(f"{path}: a key in it is no text, or too long", field=path)
        return entries.values()
    if isinstance(item, list | tuple):
        return cast("Sequence[object]", item)
    return ()
