"""``python -m engine import``: what a model's config.json says, understood exactly or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, cast

import typer

from engine.catalog.importing.imported import ImportedModel
from engine.catalog.importing.imported import import_model as read_model
from engine.catalog.importing.report import import_document
from engine.catalog.importing.text import MAX_BYTES, parse_object
from engine.catalog.units import bytes_label, si_label
from engine.errors import EngineError


def import_model(
    config: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A config.json of Hugging Face.")
    ],
    name: Annotated[str | None, typer.Option(help="The id that the model gets.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Read a model's config.json: structure, parameters, KV cache, stored weights."""
    try:
        with config.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        found = read_model(parse_object(content, "config"), name)
    except EngineError as error:
        raise typer.BadParameter(error.message) from None
    if as_json:
        document = import_document(found)
        typer.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))
    else:
        typer.echo(_for_people(found))


def _for_people(found: ImportedModel) -> str:
    spec, weights = found.spec, found.weights
    document = import_document(found)
    cache = cast("dict[str, float]", document["kv_cache"])
    size = weights.weight_bytes(spec)
    rows = [
        ("architecture", f"{spec.arch}, {spec.num_layers} layers"),
        ("parameters", f"{spec.num_parameters:,} ({si_label(spec.num_parameters, '')})"),
        ("read a token", f"{spec.num_streamed_parameters:,}"),
        ("KV cache", f"{cache['bytes_per_token']:,} B a token in {cache['format']}"),
        ("state", f"{bytes_label(spec.state_bytes_per_sequence)} a sequence"),
        ("weights", f"{bytes_label(size)}; simulate with --weights {weights.format_for(spec)}"),
        ("ignored", ", ".join(found.ignored) or "—"),
        ("defaults", ", ".join(f"{key} = {value}" for key, value in found.defaults.items()) or "—"),
    ]
    return "\n".join(
        [
            f"imported: {spec.id} ({found.model_type})",
            "",
            *(f"  {label:<12} {value}" for label, value in rows),
            "",
            "assumptions",
            *(f"  - {line}" for line in cast("list[str]", document["assumptions"])),
        ]
    )
