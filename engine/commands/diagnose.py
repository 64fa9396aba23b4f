"""``python -m engine diagnose``: why an answer starts late or streams slowly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from engine.catalog.units import time_label
from engine.commands.described import HARDWARE, MODEL, chosen_hardware, chosen_model
from engine.commands.knobs import read_setting, refused
from engine.errors import EngineError
from engine.simulator.diagnosis.diagnose import Cause, Diagnosis, Phase, diagnose
from engine.simulator.diagnosis.document import ASSUMPTIONS, diagnosis_document
from engine.simulator.diagnosis.observation import Observation
from engine.simulator.search.axes import KnobValue
from engine.simulator.search.cell import Cell

_LENGTHS = ("prompt_tokens", "output_tokens", "batch")
_MOST_CAUSES = 5
_MOST_REMEDIES = 6
_MOST_SLOPES = 4


def diagnosis(
    model: Annotated[str, typer.Option(help=MODEL)],
    hardware: Annotated[str, typer.Option(help=HARDWARE)],
    ttft: Annotated[float | None, typer.Option(help="Measured time to the first token, s.")] = None,
    itl: Annotated[float | None, typer.Option(help="Measured mean gap between tokens, s.")] = None,
    itl_p99: Annotated[float | None, typer.Option(help="Its 99th percentile, s.")] = None,
    queue: Annotated[float | None, typer.Option(help="Time before the first step, s.")] = None,
    tokens_per_s: Annotated[
        float | None, typer.Option(help="Output tokens/s of all requests together.")
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="All requests of the batch arrived at once.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A knob's value: batch=8, prompt-tokens=2000, weights=fp8 …"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Say whether an answer is slow to start or slow to stream, why, and what would help."""
    turned = dict(map(read_setting, settings or []))
    try:
        cell = replace(
            Cell(chosen_model(model), chosen_hardware(hardware), times="typical"), **turned
        )
        seen = Observation(cell, ttft, itl, itl_p99, queue, tokens_per_s, together)
        found = diagnose([seen])
    except EngineError as error:
        raise refused(error) from None
    if as_json:
        typer.echo(json.dumps(diagnosis_document(found), ensure_ascii=False, allow_nan=False))
    else:
        typer.echo(_for_people(found, turned))


def _for_people(found: Diagnosis, given: Mapping[str, KnobValue]) -> str:
    first = found.observations[0]
    sure = "" if found.sure else " (unsure: these measurements do not tell the causes apart)"
    lines = [
        f"{found.verdict}{sure}; most of the answer's time passes at the {found.most_time}",
        _asked(first.cell, given),
        "",
        _phase("TTFT", found.start),
        _phase("ITL", found.stream),
        "",
        "likely causes",
        *(_cause(cause) for cause in found.causes[:_MOST_CAUSES]),
        "",
        "what would help (predicted)",
    ]
    for remedy in found.remedies[:_MOST_REMEDIES]:
        saves = time_label(remedy.saving(first))
        note = "" if remedy.fits else "; does not fit"
        lines.append(f"  {remedy.words}: saves {saves} of {first.measured_part}{note}")
    lines += ["", "what moves the usual times most, in % for 1% more", *_slopes(found)]
    return "\n".join([*lines, "", *(f"- {line}" for line in ASSUMPTIONS)])


def _asked(cell: Cell, given: Mapping[str, KnobValue]) -> str:
    """The answer that is judged, and what of it was not given: the verdict depends on it."""
    assumed = [name.replace("_", "-") for name in _LENGTHS if name not in given]
    words = (
        f"of {cell.prompt_tokens:,} prompt and {cell.output_tokens:,} output tokens, "
        f"{cell.batch:,} at once"
    )
    return f"{words}; assumed, set them with --set: {', '.join(assumed)}" if assumed else words


def _slopes(found: Diagnosis) -> list[str]:
    lines: list[str] = []
    for metric in ("ttft", "itl"):
        slopes = [item for item in found.sensitivities if item.metric == metric]
        shown = ", ".join(f"{item.knob} {item.value:+.2f}" for item in slopes[:_MOST_SLOPES])
        lines.append(f"  {metric.upper():<5} {shown or '—'}")
    return lines


def _phase(name: str, phase: Phase) -> str:
    measured = "—" if phase.measured is None else time_label(phase.measured)
    return (
        f"  {name:<5} measured {measured}; typical {time_label(phase.typical)} "
        f"({time_label(phase.p10)} – {time_label(phase.p90)}), ideal {time_label(phase.ideal)}"
    )


def _cause(cause: Cause) -> str:
    weight = cause.probability if cause.share is None else cause.share
    kind = "probability" if cause.share is None else "of the usual time"
    return f"  {cause.name} ({weight:.0%} {kind}): {cause.words}; {cause.evidence}"
