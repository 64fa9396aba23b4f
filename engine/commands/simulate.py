"""``python -m engine simulate``: predict TTFT, ITL, memory and the roofline of a scenario."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from engine.catalog.units import bytes_label, label, si_label, significant, time_label
from engine.commands.described import (
    HARDWARE,
    MODEL,
    hardware_value,
    model_value,
    option_of_file,
)
from engine.errors import EngineError
from engine.simulator.capacity import Capacity
from engine.simulator.energy import IDLE_SHARE
from engine.simulator.estimates import Estimate
from engine.simulator.features import TRANSFER_LINK_GB_S, Disaggregation, Offload, Speculation
from engine.simulator.money import hourly_price, token_prices
from engine.simulator.report import SimulationReport
from engine.simulator.scenario import Scenario
from engine.simulator.scenario import simulate as run_scenario
from engine.simulator.step_cost import StepCost

_OPTIONS = {
    "tensor": "devices",
    "offload.link_gb_s": "offload_gb_s",
    "disaggregation.devices": "prefill_devices",
    "disaggregation.link_gb_s": "transfer_gb_s",
}
"""Fields whose option has another name."""


def simulate(
    model: Annotated[str, typer.Option(help=MODEL)],
    hardware: Annotated[str, typer.Option(help=HARDWARE)],
    devices: Annotated[int, typer.Option(help="How many of it, with tensor parallelism.")] = 1,
    weights: Annotated[str, typer.Option(help="Format of the weights: bf16, fp8, q4_0 …")] = "bf16",
    kv: Annotated[str, typer.Option(help="Format of the KV cache.")] = "bf16",
    activations: Annotated[
        str | None, typer.Option(help="Format that products are computed in.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Requests that arrive together.")] = 1,
    prompt_tokens: Annotated[int, typer.Option(help="Prompt tokens of each request.")] = 512,
    output_tokens: Annotated[int, typer.Option(help="Tokens that each request gets.")] = 128,
    data: Annotated[int, typer.Option(help="Groups of devices with requests of their own.")] = 1,
    stages: Annotated[int, typer.Option(help="Devices that hold the layers in turn.")] = 1,
    experts: Annotated[bool, typer.Option(help="Groups share out the routed experts.")] = False,
    imbalance: Annotated[float, typer.Option(help="Busiest experts' work over the mean.")] = 1.0,
    per_node: Annotated[int | None, typer.Option(help="Devices of a node.")] = None,
    network_gb_s: Annotated[
        float | None, typer.Option(help="A device's way out of a node.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Serving engine of typical times.")] = None,
    memory_utilization: Annotated[
        float, typer.Option(help="Part of a device's memory that may be filled.")
    ] = 0.9,
    chunk_tokens: Annotated[int | None, typer.Option(help="Prompt tokens a step.")] = None,
    prefix_hit_rate: Annotated[float, typer.Option(help="Share of a prompt in the cache.")] = 0.0,
    drafts: Annotated[int, typer.Option(help="Tokens guessed a step; 0 for none.")] = 0,
    acceptance: Annotated[float, typer.Option(help="Chance that a guess is right.")] = 0.7,
    draft_model: Annotated[str | None, typer.Option(help="A model that guesses.")] = None,
    draft_fraction: Annotated[float, typer.Option(help="Cost of a guess in plain steps.")] = 0.0,
    offload_gb_s: Annotated[
        float | None, typer.Option(help="Prefixes lie on the host, behind such a link.")
    ] = None,
    prefill_devices: Annotated[
        int | None, typer.Option(help="Prompts run on a group of so many devices.")
    ] = None,
    transfer_gb_s: Annotated[
        float, typer.Option(help="A device's way from there to the decoding group.")
    ] = TRANSFER_LINK_GB_S,
    usd_per_hour: Annotated[float | None, typer.Option(help="Price of one device.")] = None,
    idle_share: Annotated[float, typer.Option(help="Power at rest over TDP.")] = IDLE_SHARE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Predict a batch of any model of the catalogue on any of its devices, ideal and typical."""
    try:
        scenario = Scenario(
            model=model_value(model),
            hardware=hardware_value(hardware),
            devices=devices,
            weights=weights,
            kv=kv,
            activations=activations,
            batch=batch,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            data=data,
            stages=stages,
            experts=experts,
            imbalance=imbalance,
            per_node=per_node,
            network_gb_s=network_gb_s,
            engine=engine,
            memory_utilization=memory_utilization,
            chunk_tokens=chunk_tokens,
            prefix_hit_rate=prefix_hit_rate,
            speculation=Speculation(drafts, acceptance, draft_model, draft_fraction)
            if drafts
            else None,
            offload=None if offload_gb_s is None else Offload(offload_gb_s),
            disaggregation=None
            if prefill_devices is None
            else Disaggregation(prefill_devices, transfer_gb_s),
            usd_per_hour=usd_per_hour,
            idle_share=idle_share,
        )
        report = run_scenario(scenario)
    except EngineError as error:
        raise typer.BadParameter(error.message, param_hint=_option(error.field)) from None
    if as_json:
        typer.echo(json.dumps(report.to_document(), ensure_ascii=False, allow_nan=False))
    else:
        typer.echo(_for_people(report))


def _option(field: str | None) -> str | None:
    """The option behind a field of the scenario."""
    if field is None:
        return None
    name = _OPTIONS.get(field, field.rpartition(".")[2])
    return option_of_file(field) or f"--{name.replace('_', '-')}"


def _for_people(report: SimulationReport) -> str:
    scenario, cost_model, memory = report.scenario, report.cost_model, report.memory
    curve, limits = cost_model.curve, report.capacity
    itl = "— (one output token)" if report.itl is None else time_label(report.itl)
    longest = limits.longest_context
    rows = [
        ("TTFT", time_label(report.ttft)),
        ("ITL (mean)", itl),
        ("tokens/s", label(report.tokens_per_s, "")),
        ("weights", bytes_label(memory.weights)),
        ("KV cache", f"{bytes_label(memory.kv_cache)}, {memory.kv_bytes_per_token:,} B a token"),
        ("activations", bytes_label(memory.activations.bytes)),
        ("total", f"{bytes_label(memory.total)} of {bytes_label(memory.capacity)} in all"),
        ("fits", _fits(limits)),
        ("most requests", f"{limits.largest_batch:,} with {scenario.memory_utilization:g} filled"),
        ("longest", "any context" if longest is None else f"{longest:,} positions each"),
        ("prefill", _step(report.prefill)),
        ("decode", _step(report.decode)),
        ("ridge point", f"{curve.ridge_point:,.1f} FLOP/B"),
        *_typical(report),
    ]
    devices = report.ideal.deployment.layout.devices
    lines = [
        f"predicted: {cost_model.model.id} on {devices} × {cost_model.hardware.name}",
        f"{scenario.batch:,} × ({scenario.prompt_tokens:,} prompt + {scenario.output_tokens:,} "
        f"output tokens), weights in {scenario.weights}, KV cache in {scenario.kv}",
        "",
        *(f"  {name:<13} {value}" for name, value in rows),
        "",
        "assumptions",
        *(f"  - {line}" for line in report.assumptions),
    ]
    return "\n".join(lines)


def _fits(limits: Capacity) -> str:
    """Whether the fullest device has room in the part of its memory that may be filled."""
    placement = limits.placement
    needed, usable = placement.needed(limits.load), placement.usable
    return (
        f"{'yes' if limits.fits else 'no'}: a device needs {bytes_label(float(needed))} and may "
        f"fill {bytes_label(float(usable))}, {placement.utilization:g} of its memory"
    )


def _typical(report: SimulationReport) -> list[tuple[str, str]]:
    """Typical times with their intervals, and the money that they cost."""
    found = report.typical
    engine = found.run.deployment.engine_name

    def interval(estimate: Estimate) -> str:
        low, value, high = map(time_label, (estimate.p10, estimate.value, estimate.p90))
        return f"{value}, p10 to p90: {low} to {high}, on {engine}"

    rows = [("typical TTFT", interval(found.ttft))]
    if found.tpot is not None:
        rows.append(("typical TPOT", interval(found.tpot)))
    hourly = hourly_price(found.run, report.scenario.usd_per_hour)
    if hourly is not None:
        prices = token_prices(found.run, hourly.low)
        output = "—" if prices.output is None else f"{significant(prices.output)} USD"
        rows.append(
            (
                "typical cost",
                f"{significant(prices.prompt)} USD a million prompt tokens, {output} a million "
                f"output tokens, at {hourly.low:g} USD an hour ({hourly.source})",
            )
        )
    return rows


def _step(cost: StepCost) -> str:
    return (
        f"{time_label(cost.time)}, bound by {cost.bound.value}, {si_label(cost.flops, 'FLOP')}, "
        f"{bytes_label(cost.bytes)}, {cost.intensity:,.1f} FLOP/B"
    )
