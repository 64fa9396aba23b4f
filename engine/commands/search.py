"""``python -m engine search``: the cheapest deployment that answers a load within limits."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from engine.catalog.units import time_label
from engine.commands.knobs import refused
from engine.errors import EngineError
from engine.simulator.search.cheapest import Candidate, Requirement, SearchResult, cheapest
from engine.simulator.search.confirming import Confirmation, confirm
from engine.simulator.search.search_document import ASSUMPTIONS, search_document

_SHOWN = 8


def search(
    model: Annotated[str, typer.Option(help="A model of the catalogue, such as llama-3.1-8b.")],
    rate: Annotated[float, typer.Option(help="Requests/s.")],
    ttft: Annotated[float, typer.Option(help="Most that the mean TTFT may be, s.")],
    itl: Annotated[float, typer.Option(help="Most that the mean ITL may be, s.")],
    prompt_tokens: Annotated[int, typer.Option(help="Prompt tokens of a request.")] = 512,
    output_tokens: Annotated[int, typer.Option(help="Output tokens of a request.")] = 128,
    hardware: Annotated[
        list[str] | None, typer.Option(help="A device to consider; without, all with a price.")
    ] = None,
    devices: Annotated[
        list[int] | None, typer.Option(help="Devices of a replica; without, 1, 2, 4 and 8.")
    ] = None,
    weights: Annotated[
        list[str] | None, typer.Option(help="A format of the weights; without, bf16 and fp8.")
    ] = None,
    kv: Annotated[list[str] | None, typer.Option(help="A format of the KV cache.")] = None,
    replicas: Annotated[int, typer.Option(help="Most replicas.")] = 64,
    finalists: Annotated[int, typer.Option(help="How many to confirm by a simulated run.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Find the cheapest devices, formats and replicas for a load, and say why others fail."""
    try:
        result = cheapest(
            Requirement(
                model,
                rate,
                prompt_tokens,
                output_tokens,
                ttft,
                itl,
                tuple(hardware) if hardware else None,
                tuple(devices or (1, 2, 4, 8)),
                tuple(weights or ("bf16", "fp8")),
                tuple(kv or ("bf16",)),
                max_replicas=replicas,
            )
        )
        runs = [confirm(result.requirement, item) for item in result.best[: max(finalists, 0)]]
    except EngineError as error:
        raise refused(error) from None
    if as_json:
        typer.echo(json.dumps(search_document(result, runs), ensure_ascii=False, allow_nan=False))
    else:
        typer.echo(_for_people(result, runs))


def _for_people(result: SearchResult, runs: list[Confirmation]) -> str:
    lines = [f"predicted: {len(result.best)} deployments keep the limits, {len(result.failed)} not"]
    for place, item in enumerate(result.best[:_SHOWN]):
        lines.append(f"  {_candidate(item)}")
        if place < len(runs):
            lines.append(f"    {_run(runs[place])}")
    lines += ["", "others miss"]
    lines += [f"  {_name(item)}: {item.fails}" for item in result.failed[:_SHOWN]]
    return "\n".join([*lines, "", *(f"- {line}" for line in ASSUMPTIONS)])


def _name(item: Candidate) -> str:
    return f"{item.devices} × {item.hardware}, weights {item.weights}, KV {item.kv}"


def _candidate(item: Candidate) -> str:
    price = "—" if item.usd_per_hour is None else f"{item.usd_per_hour:,.2f} US$/h"
    times = [time_label(value) for value in (item.ttft, item.itl) if value is not None]
    return (
        f"{price}: {item.replicas} × ({_name(item)}), TTFT {times[0]}, ITL {times[1]}, "
        f"batch up to {item.max_batch:,}"
    )


def _run(run: Confirmation) -> str:
    verdict = "confirmed" if run.keeps else "not confirmed"
    return (
        f"{verdict} by {run.requests} simulated requests: TTFT {time_label(run.ttft)} "
        f"(p99 {time_label(run.ttft_p99)}), ITL {time_label(run.itl)} "
        f"(p99 {time_label(run.itl_p99)}), {run.good_share:.0%} keep both limits"
    )
