"""Values of a knob as people write them: ``1, 8, 64``, ``1:256:x2``, ``128:4096:128``."""

from __future__ import annotations

from engine.refusals import refused
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
        raise refused("whole_numbers" if kind is int else "numbers", knob=knob) from None


def _steps(knob: str, parts: list[str]) -> tuple[KnobValue, ...]:
    """Values from the first up to the last, by adding or multiplying."""
    kind = KNOBS[knob].type
    if len(parts) != 3 or kind is str:
        raise refused("steps_of_values")
    first, last = (float(read_value(knob, part)) for part in parts[:2])
    by = parts[2].strip()
    factor = by.startswith("x")
    try:
        step = float(by.removeprefix("x"))
    except ValueError:
        raise refused("step_number") from None
    if not (step > 1 if factor else step > 0) or not first > 0:
        raise refused("values_grow")
    if not last >= first:
        raise refused("values_end_early", knob=knob)
    found: list[KnobValue] = []
    value = first
    while value <= last * (1 + 1e-12) and len(found) <= MOST_VALUES:
        rounded = kind(round(value) if kind is int else value)
        if rounded not in found[-1:]:
            found.append(rounded)
        value = value * step if factor else value + step
    if len(found) > MOST_VALUES:
        raise refused("values_at_most", high=f"{MOST_VALUES:,}")
    return tuple(found)
