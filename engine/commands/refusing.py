"""Refusals of the engine as refusals of the options that were typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import typer

from engine.errors import EngineError
from engine.refusals import sentence


def refuse(error: EngineError, options: Mapping[str, str]) -> NoReturn:
    """End the command with what is wrong, and with the option that is at fault.

    ``options``: those whose names differ from their fields'. A field of a part counts by its own
    name: ``speculation.exit_layer`` is ``--exit-layer``.

    Raises:
        typer.BadParameter: always.
    """
    option = None if error.field is None else _option_of(error.field, options)
    message = error.message
    if error.reason is not None and option is not None and "name" in error.values:
        # The sentence names the field as a program would: here it is an option.
        message = sentence(error.reason).format_map({**error.values, "name": option})
    raise typer.BadParameter(message, param_hint=option)


def _option_of(field: str, options: Mapping[str, str]) -> str:
    own = field.rpartition(".")[2]
    return options.get(own) or f"--{own.replace('_', '-')}"
