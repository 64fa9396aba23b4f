"""``python -m engine simulate``: predict TTFT, ITL, memory and the roofline of a scenario."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from engine.catalog.units import bytes_label, label, si_label, time_label
from engine.errors import EngineError
from engine.simulator.report import SimulationReport
from engine.simulator.scenario import Scenario
from engine.simulator.scenario import simulate as run_scenario
from engine.simulator.step_cost import StepCost


def simulate(
    model: Annotated[str, typer.Option(help="A model of the catalogue, such as llama-3.1-8b.")],
    hardware: Annotated[str, typer.Option(help="A device, such as h100-sxm, or this-machine.")],
    devices: Annotated[int, typer.Option(help="How many of it, with tensor parallelism.")] = 1,
    weights: Annotated[str, typer.Option(help="Format of the weights: bf16, fp8, q4_0 …")] = "bf16",
    kv: Annotated[str, typer.Option(help="Format of the KV cache.")] = "bf16",
    activations: Annotated[
        str | None, typer.Option(help="Format that products are computed in.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Requests that arrive together.")] = 1,
    prompt_tokens: Annotated[int, typer.Option(help="Prompt tokens of each request.")] = 512,
    output_tokens: Annotated[int, typer.Option(help="Tokens that each request gets.")] = 128,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Predict a run of any dense model of the catalogue on any of its devices."""
    try:
        scenario = Scenario(
            model=model,
            hardware=hardware,
            devices=devices,
            weights=weights,
            kv=kv,
            activations=activations,
            batch=batch,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )
        report = run_scenario(scenario)
    except EngineError as error:
        option = None if error.field is None else f"--{error.field.replace('_', '-')}"
        raise typer.BadParameter(error.message, param_hint=option) from None
    if as_json:
        typer.echo(json.dumps(report.to_document(), ensure_ascii=False, allow_nan=False))
    else:
        typer.echo(_for_people(report))


def _for_people(report: SimulationReport) -> str:
    scenario, cost_model, memory = report.scenario, report.cost_model, report.memory
    curve = cost_model.curve
    itl = "— (one output token)" if report.itl is None else time_label(report.itl)
    rows = [
        ("TTFT", time_label(report.ttft)),
        ("ITL (mean)", itl),
        ("tokens/s", label(report.tokens_per_s, "")),
        ("weights", bytes_label(memory.weights)),
        ("KV cache", f"{bytes_label(memory.kv_cache)}, {memory.kv_bytes_per_token:,} B a token"),
        ("activations", bytes_label(memory.activations.bytes)),
        ("total", f"{bytes_label(memory.total)} of {bytes_label(memory.capacity)}"),
        ("fits", "yes" if memory.fits else "no"),
        ("prefill", _step(report.prefill)),
        ("decode", _step(report.decode)),
        ("ridge point", f"{curve.ridge_point:,.1f} FLOP/B"),
    ]
    lines = [
        f"predicted: {cost_model.model.id} on {scenario.devices} × {cost_model.hardware.name}",
        f"{scenario.batch:,} × ({scenario.prompt_tokens:,} prompt + {scenario.output_tokens:,} "
        f"output tokens), weights in {scenario.weights}, KV cache in {scenario.kv}",
        "",
        *(f"  {name:<12} {value}" for name, value in rows),
        "",
        "assumptions",
        *(f"  - {line}" for line in report.assumptions),
    ]
    return "\n".join(lines)


def _step(cost: StepCost) -> str:
    return (
        f"{time_label(cost.time)}, bound by {cost.bound.value}, {si_label(cost.flops, 'FLOP')}, "
        f"{bytes_label(cost.bytes)}, {cost.intensity:,.1f} FLOP/B"
    )
