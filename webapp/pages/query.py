"""Reads knobs from a query string: numbers are brought into range, what is no number is left out.

Names are passed on as they came; the simulator says what is wrong with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Knobs:
    """The knobs of a query whose names start with ``prefix``."""

    query: Mapping[str, str]
    prefix: str = ""

    def text(self, name: str, default: str, most: int = LONGEST_NAME) -> str:
        """What stands there, cut after ``most`` characters."""
        return self.query.get(self.prefix + name, default)[:most]

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """One of ``choices``."""
        given = self.query.get(self.prefix + name, default)
        return given if given in choices else default

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.query.get(self.prefix + name, "") == "on"

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``."""
        given = self.query.get(self.prefix + name, "").strip()
        if not (given.isascii() and given.isdigit()):
            return default
        return min(max(int(given[:12]), low), high)

    def real(self, name: str, default: float, low: float, high: float) -> float:
        """A number from ``low`` to ``high``."""
        value = self.optional(name, low, high)
        return default if value is None else value

    def measured(self, name: str) -> float | None:
        """A number as it was given: what was measured is refused where it cannot be, not moved.

        None where the field is empty or holds no number.
        """
        try:
            value = float(self.query.get(self.prefix + name, "")[:24])
        except ValueError:
            return None
        return None if math.isnan(value) else value

    def optional(self, name: str, low: float, high: float) -> float | None:
        """A number from ``low`` to ``high``; None where the field is empty or holds none."""
        try:
            value = float(self.query.get(self.prefix + name, "")[:24])
        except ValueError:
            return None
        return None if math.isnan(value) else min(max(value, low), high)


@dataclass(frozen=True, slots=True)
class Moved:
    """A knob that a link gave, and the number that was taken in its place."""

    name: str
    given: str
    taken: str


def moved_knobs(
    query: Mapping[str, str], names: Iterable[str], taken: object, prefix: str = ""
) -> tuple[Moved, ...]:
    """The numbers of a query that ``taken``, a question read from it, does not have as they were
    given: out of their range, or no numbers."""
    found: list[Moved] = []
    for name in names:
        given, value = query.get(prefix + name, "").strip(), getattr(taken, name)
        if given and not _is(given, value):
            shown = f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
            found.append(Moved(prefix + name, given[:24], shown))
    return tuple(found)


def _is(given: str, value: float) -> bool:
    try:
        return float(given[:24]) == value
    except ValueError:
        return False
