"""``python -m engine serve``: simulate a service under load, from arrivals to percentiles."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from engine.catalog.units import time_label
from engine.commands.described import (
    HARDWARE,
    MODEL,
    chosen_hardware,
    chosen_model,
    option_of_file,
)
from engine.errors import EngineError, InvalidRequest
from engine.simulator.deployment import Deployment, Times
from engine.simulator.layout import Layout
from engine.simulator.serving.arrivals import Arrivals, ClosedLoop, GammaArrivals, PoissonArrivals
from engine.simulator.serving.lengths import (
    FixedLength,
    Lengths,
    LogNormalLength,
    UniformLength,
)
from engine.simulator.serving.quantiles import Distribution
from engine.simulator.serving.result import ServingResult
from engine.simulator.serving.routing import Routing
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.settings import EngineSettings, ServiceLevel
from engine.simulator.serving.simulation import simulate_serving
from engine.simulator.serving.trace import read_trace
from engine.simulator.serving.workload import (
    AnyWorkload,
    PrefixGroups,
    TraceWorkload,
    Workload,
)

MAX_TRACE_BYTES = 256 * 2**20

_LENGTH = "Tokens: 512, uniform:100:900 or lognormal:MEAN:CV[:MOST]."


def serve(
    model: Annotated[str, typer.Option(help=MODEL)],
    hardware: Annotated[str, typer.Option(help=HARDWARE)],
    tensor: Annotated[int, typer.Option(help="Devices that share every matrix.")] = 1,
    data: Annotated[int, typer.Option(help="Data-parallel groups of a replica.")] = 1,
    weights: Annotated[str, typer.Option(help="Format of the weights.")] = "bf16",
    kv: Annotated[str, typer.Option(help="Format of the KV cache.")] = "bf16",
    activations: Annotated[str | None, typer.Option(help="Format of the products.")] = None,
    times: Annotated[str, typer.Option(help="ideal (roofline) or typical.")] = "typical",
    engine: Annotated[
        str | None, typer.Option(help="Serving engine whose overheads typical times have.")
    ] = None,
    memory_utilization: Annotated[float, typer.Option(help="Part of the memory in use.")] = 0.9,
    rate: Annotated[float | None, typer.Option(help="Requests/s that arrive.")] = None,
    cv: Annotated[float, typer.Option(help="Variation of the gaps: 1 Poisson, 0 regular.")] = 1.0,
    clients: Annotated[
        int | None, typer.Option(help="Instead of a rate: clients that wait for their answers.")
    ] = None,
    think: Annotated[float, typer.Option(help="Seconds that a client thinks.")] = 0.0,
    requests: Annotated[int | None, typer.Option(help="How many; 1000 without a trace.")] = None,
    prompt: Annotated[str, typer.Option(help=_LENGTH)] = "512",
    output: Annotated[str, typer.Option(help=_LENGTH)] = "128",
    prefixes: Annotated[
        str | None, typer.Option(help="Shared beginnings of prompts: GROUPS:TOKENS[:SHARE].")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="CSV or JSON lines with arrivals and lengths.")
    ] = None,
    speed: Annotated[float, typer.Option(help="How many times as fast the trace runs.")] = 1.0,
    max_running: Annotated[int, typer.Option(help="Requests at once (max_num_seqs).")] = 256,
    max_step_tokens: Annotated[
        int, typer.Option(help="Tokens of a step (max_num_batched_tokens).")
    ] = 8192,
    chunked_prefill: Annotated[bool, typer.Option(help="Split prompts over steps.")] = True,
    prefix_caching: Annotated[bool, typer.Option(help="Find beginnings of prompts again.")] = False,
    policy: Annotated[str, typer.Option(help="first-come, shortest-first …")] = "first-come",
    kv_blocks: Annotated[int | None, typer.Option(help="Instead of what fits.")] = None,
    replicas: Annotated[int, typer.Option(help="Equal deployments behind one router.")] = 1,
    routing: Annotated[Routing, typer.Option(help="How requests are spread.")] = (
        Routing.ROUND_ROBIN
    ),
    slo_ttft: Annotated[float | None, typer.Option(help="Seconds to the first token.")] = None,
    slo_tpot: Annotated[float | None, typer.Option(help="Seconds a token, on the mean.")] = None,
    slo_e2e: Annotated[float | None, typer.Option(help="Seconds to the last token.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Predict TTFT, ITL, throughput and queues of a model that many people use at once."""
    try:
        arrivals = _arrivals(rate, cv, clients, think)
        scenario = ServingScenario(
            Deployment(
                model=chosen_model(model),
                hardware=chosen_hardware(hardware),
                layout=Layout(tensor=tensor, data=data),
                weights=weights,
                kv=kv,
                activations=activations,
                times=cast("Times", times),
                engine=engine,
                memory_utilization=memory_utilization,
            ),
            _workload(arrivals, requests, (prompt, output), prefixes, trace, speed),
            EngineSettings(
                max_running=max_running,
                max_step_tokens=max_step_tokens,
                chunked_prefill=chunked_prefill,
                prefix_caching=prefix_caching,
                policy=policy,
                kv_blocks=kv_blocks,
            ),
            replicas=replicas,
            routing=routing,
            slo=ServiceLevel(slo_ttft, slo_tpot, slo_e2e),
            seed=seed,
        )
        result = simulate_serving(scenario, _progress if sys.stderr.isatty() else None)
    except EngineError as error:
        raise typer.BadParameter(error.message, param_hint=_option(error.field)) from None
    if as_json:
        typer.echo(json.dumps(result.to_document(), ensure_ascii=False, allow_nan=False))
    else:
        typer.echo(_for_people(result))


def _option(field: str | None) -> str | None:
    """The option behind a field of the scenario."""
    if field is None:
        return None
    return option_of_file(field) or f"--{field.replace('_', '-')}"


def _progress(finished: int, time: float) -> None:
    typer.echo(f"\r{finished:,} requests answered, {time:,.1f} s simulated ", nl=False, err=True)


def _arrivals(rate: float | None, cv: float, clients: int | None, think: float) -> Arrivals | None:
    if rate is not None and clients is not None:
        raise InvalidRequest("give a rate or clients, not both", field="clients")
    if clients is not None:
        return ClosedLoop(clients, think)
    if rate is None:
        return None
    return PoissonArrivals(rate) if cv == 1 else GammaArrivals(rate, cv)


def _workload(
    arrivals: Arrivals | None,
    requests: int | None,
    lengths: tuple[str, str],
    prefixes: str | None,
    trace: Path | None,
    speed: float,
) -> AnyWorkload:
    if trace is not None:
        return TraceWorkload(read_trace(_read(trace)), speed, requests, arrivals)
    if arrivals is None:
        raise InvalidRequest("give --rate, --clients or --trace", field="rate")
    prompt, output = lengths
    return Workload(
        arrivals,
        _length(prompt, "prompt"),
        _length(output, "output"),
        1000 if requests is None else requests,
        None if prefixes is None else _prefixes(prefixes),
    )


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise InvalidRequest(
                f"a trace may have {MAX_TRACE_BYTES // 2**20} MiB at most", field="trace"
            )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidRequest("there is no readable UTF-8 file there", field="trace") from None


def _length(text: str, field: str) -> Lengths:
    kind, *numbers = text.split(":") if ":" in text else ("fixed", text)
    try:
        if kind == "fixed" and len(numbers) == 1:
            return FixedLength(int(numbers[0]))
        if kind == "uniform" and len(numbers) == 2:
            return UniformLength(int(numbers[0]), int(numbers[1]))
        if kind == "lognormal" and len(numbers) == 2:
            return LogNormalLength(float(numbers[0]), float(numbers[1]))
        if kind == "lognormal" and len(numbers) == 3:
            return LogNormalLength(float(numbers[0]), float(numbers[1]), int(numbers[2]))
    except ValueError:
        pass
    except InvalidRequest as error:
        raise InvalidRequest(f"{error.field}: {error.message}", field=field) from None
    raise InvalidRequest(
        "write a number of tokens, uniform:LOW:HIGH or lognormal:MEAN:CV[:MOST]", field=field
    )


def _prefixes(text: str) -> PrefixGroups:
    groups, *rest = text.split(":")
    try:
        if len(rest) in (1, 2):
            share = float(rest[1]) if len(rest) == 2 else 1.0
            return PrefixGroups(int(groups), int(rest[0]), share)
    except ValueError:
        pass
    raise InvalidRequest("write GROUPS:TOKENS or GROUPS:TOKENS:SHARE", field="prefixes")


def _for_people(result: ServingResult) -> str:
    scenario, totals = result.scenario, result.totals
    rows = {
        "TTFT": result.ttft,
        "ITL": result.itl,
        "TPOT": result.tpot,
        "E2E": result.e2e,
        "queueing": result.queued,
    }
    lines = [
        f"predicted ({scenario.deployment.times}): {result.cost_model.model.id} on "
        f"{scenario.devices} × {result.cost_model.hardware.name}, {scenario.replicas} × replica",
        f"{totals.finished:,} requests answered in {time_label(result.span)}"
        + (f", {totals.refused:,} refused: too long" if totals.refused else ""),
        "",
        f"  {'':<9}" + "".join(f"{name:>12}" for name in ("mean", "p50", "p90", "p95", "p99")),
        *(f"  {name:<9}{_percentiles(found)}" for name, found in rows.items()),
        "",
        f"  throughput   {result.requests_per_s:,.2f} requests/s, "
        f"{result.input_tokens_per_s:,.0f} input and {result.output_tokens_per_s:,.0f} output "
        "tokens/s",
    ]
    if result.good_share is not None and result.goodput is not None:
        lines.append(
            f"  goodput      {result.goodput:,.2f} requests/s: {result.good_share:.1%} of all "
            "keep every limit"
        )
    lines += [
        f"  utilization  busy {result.busy_share:.1%}, MFU {_share(result.mfu)}, "
        f"MBU {_share(result.mbu)}, mean batch {result.mean_batch or 0:,.1f}",
        f"  KV cache     {result.kv_blocks:,} blocks a scheduler, {totals.preemptions:,} "
        f"preemptions, prefix hits {_share(result.prefix_hit_rate)}",
        f"  check        Little's law holds to {result.littles_law.error:.1e}",
    ]
    return "\n".join(lines)


def _percentiles(found: Distribution | None) -> str:
    if found is None:
        return "".join(f"{'—':>12}" for _ in range(5))
    return "".join(f"{time_label(value):>12}" for value in (found.mean, *found.percentiles))


def _share(value: float | None) -> str:
    return "—" if value is None else f"{value:.1%}"
