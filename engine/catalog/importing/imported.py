"""``config.json`` → ``ModelSpec``, with a record of what was understood."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.catalog.importing.common import read_general
from engine.catalog.importing.document import ConfigDocument, Object, as_object
from engine.catalog.importing.families import find
from engine.catalog.importing.quantization import read_weights
from engine.catalog.importing.stored import StoredWeights
from engine.catalog.model_spec import ModelSpec
from engine.errors import InvalidRequest

MAX_PARAMETERS = 10**15
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+/-]{0,99}")
_SOURCE = "an imported config.json, read key by key"


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model from a ``config.json``, and how its keys were taken.

    ``understood`` keys shaped the model, ``ignored`` ones have no part in what a step costs,
    ``defaults`` are what absent keys mean for this type of model, ``left_out`` the parts of the
    file's model that are not its language model. Keys carry the path to them.
    """

    spec: ModelSpec
    model_type: str
    weights: StoredWeights
    understood: tuple[str, ...]
    ignored: tuple[str, ...]
    defaults: Mapping[str, int | bool | str | None]
    left_out: tuple[str, ...]


def import_model(config: object, name: str | None = None, path: str = "config") -> ImportedModel:
    """Understand a Hugging Face ``config.json`` exactly, or refuse it.

    ``config`` is the parsed JSON and untrusted. ``name`` becomes the model's id; without one it
    is "imported-" and the model's type.

    Raises:
        InvalidRequest: a value is missing, of the wrong type or out of range (the field is the
            key with its path), or the document is too large.
        UnsupportedModel: a key or value asks for what is not understood (the same).
    """
    document = ConfigDocument(as_object(config, path), path)
    found = find(document)
    spec = found.reader(found.text)
    weights = read_weights(document, found.text, spec.num_layers)
    for part in _distinct(document, found.text):
        read_general(part)
        part.done()
    if spec.num_parameters > MAX_PARAMETERS:
        raise InvalidRequest(f"{path}: the sizes together are no model's", field=path)
    model_id = _checked_name(name) if name is not None else f"imported-{found.model_type}"
    parts = _distinct(document, found.text)
    return ImportedModel(
        spec=replace(spec, id=model_id, source=_SOURCE, verified=False),
        model_type=found.model_type,
        weights=weights,
        understood=tuple(part.field(key) for part in parts for key in part.understood),
        ignored=tuple(part.field(key) for part in parts for key in sorted(part.ignored)),
        defaults={part.field(key): value for part in parts for key, value in part.defaults.items()},
        left_out=found.left_out,
    )


def _distinct(document: ConfigDocument, text: ConfigDocument) -> tuple[ConfigDocument, ...]:
    return (document,) if text is document else (document, text)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "give a name of letters, digits and . _ : + / -, 100 characters at most", field="name"
        )
    return name


def model_object(value: Object, path: str) -> ImportedModel:
    """The model of ``{"config": {...}, "name": "..."}``; the name may be left out.

    Raises:
        InvalidRequest, UnsupportedModel: as ``import_model``; or another key is there.
    """
    document = ConfigDocument(value, path)
    config = document.inner("config")
    if config is None:
        document.wrong("config", "is missing; give the config.json of a model")
    name = document.plain_text("name") or None
    document.done()
    return import_model(value["config"], name, config.path)
