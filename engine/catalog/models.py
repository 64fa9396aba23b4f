"""The models of the catalogue: their structure as data, with its source."""

from __future__ import annotations

from functools import cache

from engine.catalog.loading import read_catalogue
from engine.catalog.model_reading import read_model
from engine.catalog.model_spec import ModelSpec
from engine.catalog.names import unknown_id
from engine.errors import FileFormatError

__all__ = ["ModelSpec", "all_models", "get_model"]


@cache
def all_models() -> tuple[ModelSpec, ...]:
    """Every model of the catalogue, by family.

    Raises:
        FileFormatError: a catalogue file is malformed, or an id occurs twice.
    """
    models: dict[str, ModelSpec] = {}
    for file in read_catalogue("models"):
        family = file.text("family")
        for entry in file.tables("models"):
            spec = read_model(entry, family)
            if spec.id in models:
                raise FileFormatError(f"model {spec.id} occurs twice", field="id")
            models[spec.id] = spec
        file.done()
    return tuple(models.values())


@cache
def _by_id() -> dict[str, ModelSpec]:
    return {spec.id: spec for spec in all_models()}


def get_model(model_id: str) -> ModelSpec:
    """The model of that id, in any case.

    Raises:
        UnknownName: the catalogue has none of that id (field "model").
    """
    spec = _by_id().get(model_id.lower())
    if spec is None:
        raise unknown_id("model", model_id, _by_id())
    return spec
