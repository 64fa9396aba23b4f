"""``python -m engine sweep``: predict all combinations of the values of some knobs."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import typer

from engine.catalog.units import label
from engine.commands.described import HARDWARE, MODEL, chosen_hardware, chosen_model
from engine.commands.knobs import read_axis, read_setting, refused
from engine.errors import EngineError
from engine.simulator.search.axes import Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.document import UNITS, assumptions, sweep_csv, sweep_document
from engine.simulator.search.sweep import METRICS, SweepResult, run_sweep

_MOST_ROWS = 400
_KNOBS = (
    "Knobs: model, hardware, devices, weights, kv, activations, times (ideal or typical), engine, "
    "batch, prompt-tokens, output-tokens, context-tokens, usd-per-hour, memory-utilization, and "
    "factors on bandwidth, flops, link, launch and host (bandwidth-factor …)."
)


def sweep(
    model: Annotated[str, typer.Option(help=MODEL)],
    hardware: Annotated[str, typer.Option(help=HARDWARE)],
    axes: Annotated[
        list[str] | None,
        typer.Option(
            "--over", help="Knob and values: batch=1,8,64 or prompt-tokens=128:4096:x2; up to 3."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help=f"A knob's value for all cells: times=typical. {_KNOBS}"),
    ] = None,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help=f"Among {', '.join(METRICS)}.")
    ] = None,
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="table, csv or json.")
    ] = "table",
) -> None:
    """Predict TTFT, ITL, throughput, memory and price for all combinations of some values."""
    chosen = metrics or METRICS
    unknown = [name for name in chosen if name not in METRICS]
    if unknown:
        raise typer.BadParameter(f"choose among {', '.join(METRICS)}", param_hint="--metric")
    turned = dict(map(read_setting, settings or []))
    try:
        base = replace(Cell(chosen_model(model), chosen_hardware(hardware)), **turned)
        result = run_sweep(Sweep(base, tuple(map(read_axis, axes or []))))
    except EngineError as error:
        raise refused(error) from None
    if form == "json":
        typer.echo(json.dumps(sweep_document(result, chosen), ensure_ascii=False, allow_nan=False))
    elif form == "csv":
        for piece in sweep_csv(result, chosen):
            typer.echo(piece, nl=False)
    else:
        typer.echo(_for_people(result, chosen))


def _for_people(result: SweepResult, metrics: list[str] | tuple[str, ...]) -> str:
    swept = result.sweep
    if swept.cells > _MOST_ROWS:
        raise typer.BadParameter(
            f"{swept.cells:,} cells are too many for a table; choose csv or json",
            param_hint="--format",
        )
    base = swept.base
    rows = [[*(axis.knob for axis in swept.axes), *metrics]]
    for places in itertools.product(*map(range, swept.shape)):
        values = [str(axis.values[i]) for axis, i in zip(swept.axes, places, strict=True)]
        rows.append(
            values + [_shown(name, float(result.metrics[name][places])) for name in metrics]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(
        [
            f"predicted ({base.times}): {base.model_spec.id} on {base.hardware_spec.name}",
            "",
            *table,
            "",
            *(f"- {line}" for line in assumptions(swept)),
        ]
    )


def _shown(metric: str, value: float) -> str:
    if UNITS[metric] == "bool":
        return "yes" if value else "no"
    return "—" if np.isnan(value) else label(value, UNITS[metric])
