"""Knobs and their values as options: ``batch=1,8,64``, ``prompt-tokens=128:4096:x2``."""

from __future__ import annotations

import typer

from engine.errors import EngineError, InvalidRequest
from engine.simulator.search.axes import KNOBS, Axis, KnobValue
from engine.simulator.search.axis_text import read_value, read_values


def read_setting(text: str) -> tuple[str, KnobValue]:
    """A knob and its value, of ``name=value``.

    Raises:
        typer.BadParameter: there is no such knob, or the value is not of its type.
    """
    knob, _, value = text.partition("=")
    name = _knob(knob)
    try:
        return name, read_value(name, value)
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None


def read_axis(text: str) -> Axis:
    """A knob and its values, of ``name=first:last:step``, ``…:xfactor``, or a list with commas.

    Raises:
        typer.BadParameter: there is no such knob, or a value is not of its type.
    """
    knob, _, values = text.partition("=")
    name = _knob(knob)
    try:
        return Axis(name, read_values(name, values))
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None


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
