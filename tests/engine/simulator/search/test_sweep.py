"""All cells at once equal each cell on its own, for any models, devices and knobs."""

from __future__ import annotations

import itertools
import random
from dataclasses import asdict, replace
from typing import Any

import pytest

from engine.catalog.hardware import published_hardware
from engine.catalog.models import all_models
from engine.catalog.precision import FORMATS
from engine.simulator.efficiency import engine_ids
from engine.simulator.scenario import Scenario, simulate
from engine.simulator.search.axes import KNOBS, Axis, Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import estimate
from engine.simulator.search.sweep import METRICS, run_sweep

BASE = Cell("llama-3.1-8b", "h100-sxm")
MODELS = [spec.id for spec in all_models()]
HARDWARE = [spec.id for spec in published_hardware()]
CHOICES: dict[str, list[Any]] = {
    "model": MODELS,
    "hardware": HARDWARE,
    "devices": [1, 2, 3, 4, 8, 16, 48],
    "weights": sorted(FORMATS),
    "kv": sorted(FORMATS),
    "activations": ["fp32", "tf32", "bf16", "fp16", "fp8", "int8"],
    "times": ["ideal", "typical"],
    "engine": list(engine_ids()),
    "batch": [1, 2, 3, 7, 8, 9, 64, 777, 4096],
    "prompt_tokens": [1, 2, 7, 8, 9, 100, 128, 1000, 4097, 131_072, 2_000_000],
    "output_tokens": [1, 2, 3, 4, 5, 128, 1001, 131_072],
    "context_tokens": [0, 1, 2, 15, 127, 128, 129, 5000, 100_000, 2_000_000],
    "usd_per_hour": [0.0, 0.5, 12.0],
    "memory_utilization": [0.01, 0.5, 0.9, 1.0],
    "bandwidth_factor": [0.1, 0.9, 1.0, 1.5, 40.0],
    "flops_factor": [0.1, 0.9, 1.0, 1.5, 40.0],
    "link_factor": [0.1, 1.0, 3.0],
    "launch_factor": [0.001, 1.0, 8.0],
    "host_factor": [0.001, 1.0, 8.0],
}


def check_cells(sweep: Sweep) -> None:
    """Every cell of the fast way against the slow one."""
    result = run_sweep(sweep)
    for name in METRICS:
        assert result.metrics[name].shape == sweep.shape
    for places in itertools.product(*(range(size) for size in sweep.shape)):
        slow = asdict(estimate(sweep.at(*places)))
        for name in METRICS:
            fast = result.metrics[name][places]
            assert fast == pytest.approx(slow[name], rel=1e-9, nan_ok=True), (name, places)


def test_the_choices_are_the_knobs() -> None:
    assert set(CHOICES) == set(KNOBS)


@pytest.mark.parametrize("times", ["ideal", "typical"])
@pytest.mark.parametrize("model", MODELS)
def test_every_model(model: str, times: str) -> None:
    chance = random.Random(f"{model} {times}")
    base = replace(
        BASE,
        model=model,
        times=times,
        hardware=chance.choice(HARDWARE),
        devices=chance.choice([1, 2, 8]),
        kv=chance.choice(["bf16", "fp8", "q4_0"]),
        output_tokens=chance.choice([1, 2, 40]),
    )
    axes = [
        Axis("batch", (1, 5, 300)),
        Axis("prompt_tokens", (1, 8, 9, 131, 40_000)),
        Axis("context_tokens", (0, 1, 127, 50_000)),
    ]
    check_cells(Sweep(base, tuple(axes)))


@pytest.mark.parametrize("knobs", list(itertools.combinations(CHOICES, 2)), ids="-".join)
def test_any_two_knobs(knobs: tuple[str, str]) -> None:
    chance = random.Random("-".join(knobs))
    base = Cell(**{name: chance.choice(values) for name, values in CHOICES.items()})
    axes = [Axis(knob, tuple(chance.sample(CHOICES[knob], 2))) for knob in knobs]
    check_cells(Sweep(base, tuple(axes)))


@pytest.mark.parametrize("devices", [1, 2])
def test_what_fits_is_what_a_scenario_says(devices: int) -> None:
    """Llama-3.1-70B's 141 GB on two H100 fit 0.9 of their 160 GB, and not 0.85."""
    cell = Cell("llama-3.1-70b", "h100-sxm", devices=devices)
    shares = (0.5, 0.85, 0.9, 1.0)
    swept = run_sweep(Sweep(cell, (Axis("memory_utilization", shares),))).metrics["fits"]
    said = [
        simulate(
            Scenario("llama-3.1-70b", "h100-sxm", devices=devices, memory_utilization=share)
        ).capacity.fits
        for share in shares
    ]
    assert swept.tolist() == said
    assert [estimate(replace(cell, memory_utilization=share)).fits for share in shares] == said
    assert said == ([False, False, True, True] if devices == 2 else [False] * 4)
