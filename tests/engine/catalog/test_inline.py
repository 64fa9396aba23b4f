"""Models and devices by id, or described in place."""

from __future__ import annotations

import pytest

from engine.catalog.hardware import get_hardware
from engine.catalog.inline import hardware_from, model_from
from engine.catalog.models import get_model
from engine.errors import EngineError, InvalidRequest, UnknownName
from tests.engine.catalog.importing.released import released

DEVICE = {"memory_gb": 24, "bandwidth_gb_s": 1000, "dense_tflops": {"bf16": 100}}


def test_ids_and_specs_are_taken_as_they_are() -> None:
    model, device = get_model("llama-3.1-8b"), get_hardware("h100-sxm")
    assert model_from("llama-3.1-8b") is model_from(model) is model
    assert hardware_from("h100-sxm") is hardware_from(device) is device


def test_a_config_and_a_custom_device_are_read() -> None:
    spec = model_from({"config": released("llama-3.1-8b"), "name": "mine"})
    assert spec.id == "mine"
    assert spec.num_parameters == get_model("llama-3.1-8b").num_parameters
    assert hardware_from({"custom": DEVICE}).bandwidth == 1e12


WRONG_MODELS = [
    ("gpt-5", "model"),
    ({}, "model.config"),
    ({"config": "llama"}, "model.config"),
    ({"config": released("llama-3.1-8b", hidden_size=-1)}, "model.config.hidden_size"),
    ({"config": released("llama-3.1-8b"), "other": 1}, "model.other"),
    ({"config": released("llama-3.1-8b"), "name": "a b"}, "name"),
    (7, "model"),
    (None, "model"),
]


@pytest.mark.parametrize(("value", "field"), WRONG_MODELS, ids=range(len(WRONG_MODELS)))
def test_errors_name_the_field_of_the_model(value: object, field: str) -> None:
    with pytest.raises(EngineError) as caught:
        model_from(value)
    assert caught.value.field == field


WRONG_DEVICES = [
    ("h1000", "hardware"),
    ({}, "hardware.custom"),
    ({"custom": {**DEVICE, "memory_gb": 0}}, "hardware.custom.memory_gb"),
    ({"custom": DEVICE, "other": 1}, "hardware.other"),
    ([], "hardware"),
]


@pytest.mark.parametrize(("value", "field"), WRONG_DEVICES, ids=range(len(WRONG_DEVICES)))
def test_errors_name_the_field_of_the_device(value: object, field: str) -> None:
    with pytest.raises(EngineError) as caught:
        hardware_from(value)
    assert caught.value.field == field


def test_unknown_ids_are_unknown_names() -> None:
    with pytest.raises(UnknownName):
        model_from("gpt-5")
    with pytest.raises(InvalidRequest):
        hardware_from(7)
