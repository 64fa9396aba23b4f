"""Values of a knob as people write them: ``1, 8, 64``, ``1:256:x2``, ``128:4096:128``."""

from __future__ import annotations

from engine.errors import InvalidRequest
from engine.simulator.search.axes import KNOBS, KnobValue

MOST_VALUES = 10_000


def read_values(knob: str, text: str) -> tuple[KnobValue, ...]:
    """The values of ``first:last:step``, of ``first:last:xfactor``, or of a list with commas.

    Raises:
        InvalidRequest: a value is not of the knob's type, or the steps lead nowhere.
    """
    if ":" in text:
        return _steps(knob, text.split(":"))
    return tuple(read_value(knob, part) for part in text.split(","))


def read_value(knob: str, text: str) -> KnobValue:
    """One value.

    Raises:
        InvalidRequest: it is not of the knob's type.
    """
    kind = KNOBS[knob].type
    try:
        return kind(text.strip())
    except ValueError:
        words = "whole numbers such as 8" if kind is int else "numbers such as 8"
        raise InvalidRequest(f"{knob} takes {words}, written in digits") from None


def _steps(knob: str, parts: list[str]) -> tuple[KnobValue, ...]:
    """Values from the first up to the last, by adding or multiplying."""
    kind = KNOBS[knob].type
    if len(parts) != 3 or kind is str:
        raise InvalidRequest("write first:last:step, or first:last:xfactor, of a number")
    first, last = (float(read_value(knob, part)) for part in parts[:2])
    by = parts[2].strip()
    factor = by.startswith("x")
    try:
        step = float(by.removeprefix("x"))
    except ValueError:
        raise InvalidRequest("the step is a number, or x and a factor: x2") from None
    if not (step > 1 if factor else step > 0) or not first > 0:
        raise InvalidRequest("values grow from a first one above 0")
    if not last >= first:
        raise InvalidRequest(f"{knob} ends below its first value; write the smaller one first")
    found: list[KnobValue] = []
    value = first
    while value <= last * (1 + 1e-12) and len(found) <= MOST_VALUES:
        rounded = kind(round(value) if kind is int else value)
        if rounded not in found[-1:]:
            found.append(rounded)
        value = value * step if factor else value + step
    if len(found) > MOST_VALUES:
        raise InvalidRequest(f"an axis has {MOST_VALUES:,} values at most")
    return tuple(found)
