"""A model or a device as a request names it: an id of the catalogue, or described in place.

model_from("llama-3.1-8b")
model_from({"config": {"model_type": "llama", "hidden_size": 4096, ...}})
hardware_from("h100-sxm")
hardware_from({"custom": {"name": "My GPU", "memory_gb": 80, ...}})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from engine.catalog.custom_hardware import read_custom_hardware
from engine.catalog.device import HardwareSpec
from engine.catalog.hardware import get_hardware
from engine.catalog.importing.document import ConfigDocument, as_object
from engine.catalog.importing.imported import model_object
from engine.catalog.model_spec import ModelSpec
from engine.catalog.models import get_model
from engine.errors import InvalidRequest


def model_from(value: object) -> ModelSpec:
    """The model of an id, of ``{"config": {...}}`` (a config.json; "name" may stand beside it),
    or a spec as it is.

    Raises:
        UnknownName: the catalogue has no such id (field "model").
        InvalidRequest, UnsupportedModel: the config.json is wrong or not understood; the field
            is its key, such as "model.config.hidden_size".
    """
    if isinstance(value, ModelSpec):
        return value
    if isinstance(value, str):
        return get_model(value)
    if isinstance(value, Mapping):
        return model_object(as_object(cast("object", value), "model"), "model").spec
    raise InvalidRequest('give an id, or {"config": {...}} with a config.json', field="model")


def hardware_from(value: object) -> HardwareSpec:
    """The device of an id, of ``{"custom": {...}}``, or a spec as it is.

    Raises:
        UnknownName: the catalogue has no such id (field "hardware").
        InvalidRequest, UnsupportedModel: a field of the custom device is wrong or unknown; the
            field is named, such as "hardware.custom.memory_gb".
        FileFormatError: this machine was asked for and its calibration cannot be read.
    """
    if isinstance(value, HardwareSpec):
        return value
    if isinstance(value, str):
        return get_hardware(value)
    if isinstance(value, Mapping):
        document = ConfigDocument(as_object(cast("object", value), "hardware"), "hardware")
        custom = document.inner("custom")
        if custom is None:
            document.wrong("custom", "is missing; give the figures of a device")
        document.done()
        return read_custom_hardware(cast("Mapping[str, object]", value)["custom"], custom.path)
    raise InvalidRequest('give an id, or {"custom": {...}} with a device', field="hardware")
