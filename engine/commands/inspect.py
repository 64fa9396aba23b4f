"""``python -m engine inspect``: what the catalogues hold."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from engine.catalog.hardware import all_hardware
from engine.catalog.models import all_models
from engine.catalog.units import significant


class Catalogue(StrEnum):
    MODELS = "models"
    HARDWARE = "hardware"


def inspect(
    catalogue: Annotated[Catalogue, typer.Argument(help="models or hardware.")],
) -> None:
    """List the ids that ``simulate`` takes, with the figures that matter most."""
    rows = _models() if catalogue is Catalogue.MODELS else _hardware()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join((first, *rest)).rstrip())


def _models() -> list[tuple[str, ...]]:
    header = ("id", "family", "parameters", "KV bytes a token (16 bit)", "context")
    return [
        header,
        *(
            (
                model.id,
                model.family,
                f"{significant(model.num_parameters / 1e9)} B",
                f"{model.kv_bytes_per_token(16):,.0f}",
                f"{model.max_context:,}",
            )
            for model in all_models()
        ),
    ]


def _hardware() -> list[tuple[str, ...]]:
    header = ("id", "name", "kind", "memory", "bandwidth", "16-bit dense")
    return [
        header,
        *(
            (
                device.id,
                device.name,
                device.kind,
                f"{significant(device.memory_bytes / 1e9)} GB",
                f"{significant(device.bandwidth / 1e9)} GB/s",
                _rate(device.dense_flops.get("bf16") or device.dense_flops.get("fp16")),
            )
            for device in all_hardware()
        ),
    ]


def _rate(flops: float | None) -> str:
    return "—" if flops is None else f"{significant(flops / 1e12)} TFLOP/s"
