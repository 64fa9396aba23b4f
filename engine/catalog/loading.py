"""Reads the catalogue's TOML files field by field, so that a slip in the data is a clear error."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import cast

from engine.errors import FileFormatError


class Table:
    """One TOML table with typed access; ``done`` refuses fields that nobody asked for.

    Every accessor raises FileFormatError, naming the field, when it is missing or mistyped.
    """

    def __init__(self, values: dict[str, object], where: str) -> None:
        self._values = values
        self._where = where
        self._seen: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def _get(self, key: str, expected: type | tuple[type, ...], what: str) -> object:
        self._seen.add(key)
        value = self._values.get(key)
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise FileFormatError(f"{self._where}: {key} must be {what}", field=key)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        if default is not None and key not in self:
            return default
        return cast("str", self._get(key, str, "a text"))

    def integer(self, key: str, default: int | None = None) -> int:
        if default is not None and key not in self:
            return default
        value = cast("int", self._get(key, int, "a whole number, 0 or more"))
        if value < 0:
            raise FileFormatError(f"{self._where}: {key} must not be negative", field=key)
        return value

    def number(self, key: str) -> float:
        value = cast("float", self._get(key, (int, float), "a number above 0"))
        if not 0 < value < float("inf"):
            raise FileFormatError(f"{self._where}: {key} must be a number above 0", field=key)
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        if default is not None and key not in self:
            return default
        return cast("bool", self._get(key, bool, "true or false"))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; an absent one is empty."""
        return tuple(str(item) for item in self._list(key, str, "a list of texts"))

    def integers(self, key: str) -> tuple[int, ...]:
        return tuple(cast("list[int]", self._list(key, int, "a list of whole numbers")))

    def _list(self, key: str, item: type, what: str) -> list[object]:
        if key not in self:
            return []
        values = cast("list[object]", self._get(key, list, what))
        if not all(isinstance(value, item) for value in values):
            raise FileFormatError(f"{self._where}: {key} must be {what}", field=key)
        return values

    def table(self, key: str) -> Table | None:
        """A table inside this one, or None where it is absent."""
        if key not in self:
            return None
        values = cast("dict[str, object]", self._get(key, dict, "a table"))
        return Table(values, f"{self._where}.{key}")

    def tables(self, key: str) -> Iterator[Table]:
        """The tables of a list, each named by its id in messages."""
        for values in self._list(key, dict, "a list of tables"):
            entry = cast("dict[str, object]", values)
            yield Table(entry, f"{self._where}: {entry.get('id', key)}")

    def numbers(self, key: str) -> dict[str, float]:
        """A table of named numbers, all above 0."""
        table = self.table(key)
        if table is None:
            raise FileFormatError(f"{self._where}: {key} is missing", field=key)
        return {name: table.number(name) for name in table._values}

    def done(self) -> None:
        """Refuse what was not read: a misspelt field must not vanish in silence."""
        unknown = sorted(self._values.keys() - self._seen)
        if unknown:
            raise FileFormatError(f"{self._where}: unknown field {unknown[0]}", field=unknown[0])


def read_catalogue(kind: str) -> Iterator[Table]:
    """The catalogue files of one kind ("models", "hardware"), in the order of their names.

    Raises:
        FileFormatError: a file is not valid TOML.
    """
    folder = files("engine.catalog") / "data" / kind
    for path in sorted(folder.iterdir(), key=lambda item: item.name):
        if not path.name.endswith(".toml"):
            continue
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise FileFormatError(f"{path.name} is not valid TOML: {error}") from error
        yield Table(values, path.name)
