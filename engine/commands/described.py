"""``--model FILE.json`` and ``--hardware FILE.json``: what the catalogue does not have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.catalog.device import HardwareSpec
from engine.catalog.importing.text import MAX_BYTES, parse_object
from engine.catalog.inline import hardware_from, model_from
from engine.catalog.model_spec import ModelSpec
from engine.errors import InvalidRequest

MODEL = "A model of the catalogue, such as llama-3.1-8b, or the path of a config.json."
HARDWARE = (
    "A device, such as h100-sxm, this-machine, or the path of a .json with a device's figures."
)
_SUFFIX = ".json"


def model_value(text: str) -> str | Mapping[str, object]:
    """An id as it is, or ``{"config": …}`` with the file of that path.

    Raises:
        InvalidRequest: the file cannot be read or holds no JSON object (field "model").
    """
    return {"config": _read(text, "model")} if text.endswith(_SUFFIX) else text


def hardware_value(text: str) -> str | Mapping[str, object]:
    """An id as it is, or ``{"custom": …}`` with the file of that path.

    Raises:
        InvalidRequest: the file cannot be read or holds no JSON object (field "hardware").
    """
    return {"custom": _read(text, "hardware")} if text.endswith(_SUFFIX) else text


def chosen_model(text: str) -> str | ModelSpec:
    """An id as it is, or the model of the file of that path.

    Raises:
        InvalidRequest, UnsupportedModel: as for ``model_value`` and ``model_from``.
    """
    value = model_value(text)
    return value if isinstance(value, str) else model_from(value)


def chosen_hardware(text: str) -> str | HardwareSpec:
    """An id as it is, or the device of the file of that path.

    Raises:
        InvalidRequest, UnsupportedModel: as for ``hardware_value`` and ``hardware_from``.
    """
    value = hardware_value(text)
    return value if isinstance(value, str) else hardware_from(value)


def option_of_file(field: str) -> str | None:
    """The option whose file has the field at fault ("model.config.hidden_size"), or None."""
    first, _, rest = field.partition(".")
    return f"--{first}" if rest and first in ("model", "hardware") else None


def _read(path: str, field: str) -> Mapping[str, object]:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError:
        raise InvalidRequest("there is no readable file of this name", field=field) from None
    return parse_object(content, field)
