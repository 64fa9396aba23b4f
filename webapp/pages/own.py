"""A model from a pasted config.json and a device by its figures, as forms give them.

Both travel in the query, so that a link still is a scenario: hence the bound on their size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from engine.catalog.device import HardwareSpec
from engine.catalog.importing.text import parse_object
from engine.catalog.inline import hardware_from, model_from
from engine.catalog.model_spec import ModelSpec
from engine.refusals import refused
from webapp.pages.query import Knobs

OWN = "own"
"""What a form's choice of a model or a device says where it is described in the form itself."""
MOST_TEXT = 8192
"""Characters of a config.json or of a device that a link may carry."""


@dataclass(frozen=True, slots=True)
class OwnDevice:
    """A device as the form describes it: as JSON, or by its figures where there is none.

    ``memory`` in GB, ``bandwidth`` in GB/s, ``link`` in GB/s in one direction, ``tdp`` in W, and
    dense TFLOP/s by the format that is multiplied. ``dense``: the rates are known to be dense,
    also where they look like those with 2:4 sparsity.
    """

    json: str = ""
    memory: float | None = None
    bandwidth: float | None = None
    fp32: float | None = None
    bf16: float | None = None
    fp8: float | None = None
    int8: float | None = None
    fp4: float | None = None
    link: float | None = None
    tdp: float | None = None
    dense: bool = False

    RATES: ClassVar[tuple[str, ...]] = ("fp32", "bf16", "fp8", "int8", "fp4")
    FIGURES: ClassVar[tuple[str, ...]] = ("memory", "bandwidth", *RATES, "link", "tdp")
    MOST: ClassVar[float] = 1e9

    def document(self) -> Mapping[str, object]:
        """The device as ``POST /api/v1/simulate`` takes it under "custom".

        Raises:
            InvalidRequest: the JSON is too long or is no object (field "hardware.custom").
        """
        if self.json.strip():
            return _object(self.json, "hardware.custom")
        rates = {name: getattr(self, name) for name in self.RATES}
        given = {name: rate for name, rate in rates.items() if rate is not None}
        figures = {
            "memory_gb": self.memory,
            "bandwidth_gb_s": self.bandwidth,
            "tdp_w": self.tdp,
            "interconnect": self.link and {"type": "link", "unidirectional_gb_s": self.link},
            "confirmed_dense": list(given) if self.dense else None,
        }
        known = {name: value for name, value in figures.items() if value is not None}
        return {"name": "own device", "dense_tflops": given, **known}

    def fields(self) -> dict[str, object]:
        """The form's fields as they stand, without those that are empty."""
        figures = {f"device_{name}": getattr(self, name) for name in self.FIGURES}
        found = {name: f"{value:.12g}" for name, value in figures.items() if value is not None}
        if self.json:
            found["device"] = self.json
        return {**found, **({"device_dense": "on"} if self.dense else {})}


NO_DEVICE = OwnDevice()


@dataclass(frozen=True, slots=True)
class Described:
    """A model and a device: ids of the catalogue, or ``OWN`` with what describes it."""

    model: str
    hardware: str
    config: str = ""
    device: OwnDevice = NO_DEVICE

    def model_value(self) -> str | Mapping[str, object]:
        """What the API's ``model`` would be.

        Raises:
            InvalidRequest: the config.json is too long or is no object (field "model.config").
        """
        if self.model != OWN:
            return self.model
        return {"config": _object(self.config, "model.config")}

    def hardware_value(self) -> str | Mapping[str, object]:
        """What the API's ``hardware`` would be.

        Raises:
            InvalidRequest: as for ``OwnDevice.document``.
        """
        return {"custom": self.device.document()} if self.hardware == OWN else self.hardware

    def chosen_model(self) -> str | ModelSpec:
        """The id, or the model of the config.json.

        Raises:
            InvalidRequest, UnsupportedModel: it is not understood (the field is its key).
        """
        return self.model if self.model != OWN else _model(self.config)

    def chosen_hardware(self) -> str | HardwareSpec:
        """The id, or the device that is described.

        Raises:
            InvalidRequest, UnsupportedModel: a figure is missing or wrong (names it).
        """
        return self.hardware if self.hardware != OWN else _device(self.device)

    def fields(self) -> dict[str, object]:
        """The form's fields as they stand; descriptions only where they count."""
        found: dict[str, object] = {"model": self.model, "hardware": self.hardware}
        if self.model == OWN:
            found["config"] = self.config
        return {**found, **(self.device.fields() if self.hardware == OWN else {})}


def read_described(knobs: Knobs, default: Described) -> Described:
    """Model and device of a form's query."""
    if knobs.text("hardware", default.hardware) == OWN and not _has_device(knobs):
        device = default.device
    else:
        figures = {
            name: knobs.optional(f"device_{name}", 0.0, OwnDevice.MOST)
            for name in OwnDevice.FIGURES
        }
        json = knobs.text("device", "", MOST_TEXT + 1)
        device = OwnDevice(json, dense=knobs.flag("device_dense"), **figures)
    return Described(
        knobs.text("model", default.model),
        knobs.text("hardware", default.hardware),
        knobs.text("config", default.config, MOST_TEXT + 1),
        device,
    )


def _has_device(knobs: Knobs) -> bool:
    names = ("device", *(f"device_{name}" for name in OwnDevice.FIGURES))
    return any(knobs.prefix + name in knobs.query for name in names)


def _object(text: str, field: str) -> Mapping[str, object]:
    if not text.strip():
        raise refused("json_needed", field=field)
    if len(text) > MOST_TEXT:
        raise refused("json_too_long", field=field, high=f"{MOST_TEXT:,}")
    return parse_object(text, field)


@lru_cache(maxsize=32)
def _model(config: str) -> ModelSpec:
    return model_from({"config": _object(config, "model.config")})


@lru_cache(maxsize=32)
def _device(device: OwnDevice) -> HardwareSpec:
    return hardware_from({"custom": device.document()})
