"""``python -m engine measure``: times any OpenAI-compatible server, and explains the times."""

from __future__ import annotations

import json
import os
import random
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from engine.catalog.hardware import get_hardware
from engine.commands.described import HARDWARE, chosen_hardware, chosen_model
from engine.commands.measuring_bar import MeasuringBar
from engine.commands.refusing import refuse
from engine.errors import EngineError, EngineUnavailable, InvalidRequest
from engine.measuring.client import Client
from engine.measuring.comparison import catalogue_id, compare
from engine.measuring.document import report_document
from engine.measuring.page import report_page
from engine.measuring.plan import Plan
from engine.measuring.report import Report
from engine.measuring.session import Session
from engine.measuring.target import Address, Target
from engine.measuring.text import report_text
from engine.simulator.search.cell import Cell

_UNKNOWN_MODEL = "the catalogue does not have this model; name it with --spec"
_NO_HARDWARE = "name what the server runs on with --hardware"
_SUFFIXES = (".json", ".html", ".txt")


def measure(
    url: Annotated[str, typer.Option(help="The server, such as http://127.0.0.1:8000/v1.")],
    model: Annotated[str, typer.Option(help="The model, by the server's own name.")],
    hardware: Annotated[
        str | None, typer.Option(help=f"What it runs on, to compare with. {HARDWARE}")
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(help="The model in the catalogue, or a config.json, if --model does not say."),
    ] = None,
    devices: Annotated[int, typer.Option(help="Devices that share every matrix.")] = 1,
    weights: Annotated[str, typer.Option(help="Format of its weights: bf16, fp8, q4_0 …")] = "bf16",
    kv: Annotated[str, typer.Option(help="Format of its KV cache.")] = "bf16",
    prompt_tokens: Annotated[str, typer.Option(help="Prompt lengths.")] = "128,512,2048",
    concurrency: Annotated[str, typer.Option(help="Requests at once.")] = "1,4,16",
    output_tokens: Annotated[int, typer.Option(help="Tokens of each answer, at most.")] = 64,
    requests: Annotated[
        int | None, typer.Option(help="Requests of each point; 3 a client, 10 at least, if unsaid.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat/--completions", help="Which of the two interfaces.")
    ] = True,
    exact_output: Annotated[
        bool,
        typer.Option("--exact-output", help="Forbid answers to end early (vLLM, SGLang, this)."),
    ] = False,
    same_prompt: Annotated[
        bool, typer.Option("--same-prompt", help="One prompt a length: shows prefix caching.")
    ] = False,
    api_key_env: Annotated[
        str | None, typer.Option(help="The environment variable that holds the key.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one answer.", min=0.1)] = 120.0,
    seed: Annotated[
        int | None, typer.Option(help="Makes the same prompts again; a new one each time, unsaid.")
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Write the report there, by its ending: .json, .html or .txt."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Measure TTFT, ITL and throughput of a server, and put them on its hardware's roofline."""
    try:
        for path in out or []:
            _check_path(path)
        target = Target(
            Address.of(url),
            model,
            "chat" if chat else "completions",
            None if api_key_env is None else _key(api_key_env),
            exact_output,
        )
        plan = Plan(
            _numbers(prompt_tokens, "prompt_tokens"),
            _numbers(concurrency, "concurrency"),
            output_tokens,
            requests,
            same_prompt,
            # Prompts of an earlier run would be in the server's prefix cache.
            random.randrange(2**32) if seed is None else seed,
        )
        base, why_not = _deployment(model, spec, hardware, devices, weights, kv)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        with MeasuringBar(plan.total) as bar:
            session = Session(Client(target, threading.Event(), timeout), plan, bar)
            points = tuple(session.run())
        comparison = None if base is None else compare(base, points)
    except EngineUnavailable as error:
        typer.echo(f"Error: {error.message}", err=True)
        raise typer.Exit(1) from None
    except EngineError as error:
        named = spec is not None and (error.field or "").startswith("model")
        refuse(error, {(error.field or "").rpartition(".")[2]: "--spec"} if named else {})
    report = Report(
        target.address.url, model, target.kind, started, plan, points, comparison, why_not
    )
    for path in out or []:
        path.write_text(_written(report, path.suffix), encoding="utf-8")
    typer.echo(_written(report, ".json" if as_json else ".txt"))
    if not any(point.good for point in points):
        raise typer.Exit(1)


def _written(report: Report, suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(report_document(report), ensure_ascii=False, allow_nan=False)
    return report_page(report) if suffix == ".html" else report_text(report)


def _deployment(
    model: str, spec: str | None, hardware: str | None, devices: int, weights: str, kv: str
) -> tuple[Cell | None, str]:
    """What the server runs, priced once so that a wrong name is refused before measuring; or None
    with what is not known."""
    if hardware is None:
        return None, _NO_HARDWARE
    device = chosen_hardware(hardware)
    # A name is looked up only when it is needed: a wrong one is refused here.
    if isinstance(device, str):
        device = get_hardware(device)
    known = chosen_model(spec) if spec is not None else catalogue_id(model)
    if known is None:
        return None, _UNKNOWN_MODEL
    cell = Cell(known, device, devices, weights, kv, times="typical")
    compare(cell, [])
    return cell, ""


def _check_path(path: Path) -> None:
    """What cannot be written is refused before minutes are spent."""
    if path.suffix not in _SUFFIXES:
        raise InvalidRequest(f"give it one of these endings: {', '.join(_SUFFIXES)}", field="out")
    if not path.parent.is_dir() or path.is_dir():
        raise InvalidRequest("there is no such folder, or it is one itself", field="out")


def _key(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise InvalidRequest("this environment variable is not set", field="api_key_env")
    return value


def _numbers(text: str, field: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidRequest(
            "give whole numbers with commas between: 1,4,16", field=field
        ) from None
