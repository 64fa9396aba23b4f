"""Knobs and their values as options: ``batch=1,8,64``, ``prompt-tokens=128:4096:x2``."""

from __future__ import annotations

import typer

from engine.errors import EngineError
from engine.simulator.search.axes import KNOBS, Axis, KnobValue

_MOST_VALUES = 10_000


def read_setting(text: str) -> tuple[str, KnobValue]:
    """A knob and its value, of ``name=value``.

    Raises:
        typer.BadParameter: there is no such knob, or the value is not of its type.
    """
    knob, _, value = text.partition("=")
    name = _knob(knob)
    return name, _value(name, value)


def read_axis(text: str) -> Axis:
    """A knob and its values, of ``name=first:last:step``, ``…:xfactor``, or a list with commas.

    Raises:
        typer.BadParameter: there is no such knob, or a value is not of its type.
    """
    knob, _, values = text.partition("=")
    name = _knob(knob)
    if ":" in values:
        return Axis(name, _steps(name, values.split(":")))
    return Axis(name, tuple(_value(name, value) for value in values.split(",")))


def refused(error: EngineError) -> typer.BadParameter:
    """The refusal of an option, by the field that the engine names."""
    field = (error.field or "").split(".")[0]
    named = {"axes": "--over", "model": "--model", "hardware": "--hardware"}
    option = named.get(field, "--set" if field in KNOBS else None)
    return typer.BadParameter(error.message, param_hint=option)


def _knob(text: str) -> str:
    name = text.strip().lower().replace("-", "_")
    if name not in KNOBS:
        raise typer.BadParameter(f"choose a knob among {', '.join(KNOBS)}")
    return name


def _value(name: str, text: str) -> KnobValue:
    try:
        return KNOBS[name].type(text.strip())
    except ValueError:
        kind = "whole numbers such as 8" if KNOBS[name].type is int else "numbers such as 8"
        raise typer.BadParameter(f"{name} takes {kind}, written in digits") from None


def _steps(name: str, parts: list[str]) -> tuple[KnobValue, ...]:
    """Values from the first up to the last, by adding or multiplying."""
    if len(parts) != 3 or KNOBS[name].type is str:
        raise typer.BadParameter("write first:last:step, or first:last:xfactor, of a number")
    first, last = (_value(name, part) for part in parts[:2])
    by = parts[2].strip()
    factor = by.startswith("x")
    try:
        step = float(by.removeprefix("x"))
    except ValueError:
        raise typer.BadParameter("the step is a number, or x and a factor: x2") from None
    if not (step > 1 if factor else step > 0) or not float(first) > 0:
        raise typer.BadParameter("values grow from a first one above 0")
    if not float(last) >= float(first):
        raise typer.BadParameter(f"{name} ends below its first value; write the smaller one first")
    found: list[KnobValue] = []
    value = float(first)
    while value <= float(last) * (1 + 1e-12) and len(found) <= _MOST_VALUES:
        rounded = KNOBS[name].type(round(value) if KNOBS[name].type is int else value)
        if rounded not in found[-1:]:
            found.append(rounded)
        value = value * step if factor else value + step
    if len(found) > _MOST_VALUES:
        raise typer.BadParameter(f"an axis has {_MOST_VALUES:,} values at most")
    return tuple(found)
