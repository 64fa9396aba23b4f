"""Money and energy of a run as documents."""

from __future__ import annotations

from engine.catalog.units import significant
from engine.simulator.energy import Energy, PhaseEnergy
from engine.simulator.money import (
    SECONDS_AN_HOUR,
    hourly_price,
    requests_per_device_hour,
    token_prices,
)
from engine.simulator.quantity import Document, quantity
from engine.simulator.run import BatchRun

_HEURISTIC = "heuristic from TDP and utilization, not measured; TDP from "


def write_cost(run: BatchRun, usd_per_hour: float | None, source: str, hardware: str) -> Document:
    """US dollars of a million tokens and of a request; ``high`` beside a price's lower end."""
    hourly = hourly_price(run, usd_per_hour)
    prompt_s, rest_s = run.device_seconds
    batch = run.batch
    rate = quantity(
        requests_per_device_hour(run),
        "requests/h",
        f"{batch.requests:,} × {SECONDS_AN_HOUR:,} s / {significant(prompt_s + rest_s)} "
        "device-seconds",
        source,
    )
    if hourly is None:
        why = "the catalogue has no price of this device; give usd_per_hour"
        nothing = quantity(None, "USD", why, hardware)
        names = ("usd_per_hour", "input_million", "output_million", "request")
        return {**dict.fromkeys(names, nothing), "requests_per_device_hour": rate}
    low, high = (token_prices(run, price) for price in (hourly.low, hourly.high))
    prompts = batch.requests * batch.prompt_tokens
    decoded = batch.requests * (batch.output_tokens - 1)
    hour = f"{significant(hourly.low)} USD / {SECONDS_AN_HOUR:,} s"
    prompt_words = f"{significant(prompt_s)} device-seconds × {hour} / {prompts:,} prompt tokens"
    rest_words = f"{significant(rest_s)} device-seconds × {hour} / {decoded:,} tokens × 10⁶"
    if not decoded:
        rest_words = "nothing is decoded after the first token"
    request_words = f"{significant(prompt_s + rest_s)} device-seconds × {hour} / {batch.requests:,}"
    rows = {
        "usd_per_hour": (hourly.low, hourly.high, "of one device"),
        "input_million": (low.prompt, high.prompt, f"{prompt_words} × 10⁶"),
        "output_million": (low.output, high.output, rest_words),
        "request": (low.request, high.request, request_words),
    }
    cost: Document = {}
    for name, (least, most, formula) in rows.items():
        entry = quantity(least, "USD", formula, hourly.source)
        cost[name] = entry if least == most else {**entry, "high": most}
    return {**cost, "requests_per_device_hour": rate}


def write_energy(found: Energy | None, hardware: str) -> Document:
    """Joules of a prompt and an output token; ``at_most`` is TDP all of the time."""
    if found is None:
        nothing = quantity(None, "J", "the device's TDP is not known", hardware)
        return {"input_token": nothing, "output_token": nothing}
    source = _HEURISTIC + hardware
    nothing = quantity(None, "J", "one output token: nothing is decoded", source)
    output = found.output
    return {
        "input_token": _phase(found.prompt, found, source),
        "output_token": nothing if output is None else _phase(output, found, source),
    }


def _phase(phase: PhaseEnergy, found: Energy, source: str) -> Document:
    idle = found.idle_share
    formula = (
        f"{found.tdp:g} W × ({idle:g} + {1 - idle:g} × max(MFU {phase.mfu:.2f}, "
        f"MBU {phase.mbu:.2f})) = {phase.power:.0f} W of each device × "
        f"{significant(phase.at_most / found.tdp)} device-seconds a token"
    )
    return {**quantity(phase.per_token, "J", formula, source), "at_most": phase.at_most}
