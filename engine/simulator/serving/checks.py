"""Refusals of numbers that are out of range, worded alike."""

from __future__ import annotations

import math

from engine.refusals import refused


def whole(value: object, low: int, high: int, field: str) -> None:
    """Require a whole number from ``low`` to ``high``.

    Raises:
        InvalidRequest: it is not one (names the field).
    """
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise refused("choose_whole", field=field, low=f"{low:,}", high=f"{high:,}")


def number(value: object, low: float, high: float, field: str) -> None:
    """Require a finite number from ``low`` to ``high``.

    Raises:
        InvalidRequest: it is not one (names the field).
    """
    finite = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
    )
    if not finite:
        raise refused("choose_number", field=field, low=f"{low:g}", high=f"{high:g}")


def optional_number(value: object, low: float, high: float, field: str) -> None:
    """Require a finite number from ``low`` to ``high``, or None.

    Raises:
        InvalidRequest: it is neither (names the field).
    """
    if value is not None:
        number(value, low, high, field)
