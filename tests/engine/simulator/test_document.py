"""The document: the agreed names, and a unit, a formula and a source beside every number."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from engine.catalog.models import get_model
from engine.simulator.features import Disaggregation, Offload, Speculation
from engine.simulator.quantity import Quantity
from engine.simulator.scenario import Scenario, simulate
from tests.engine.simulator.cases import ALL_MODELS

UNITS = {
    *("s", "B", "FLOP", "FLOP/s", "B/s", "FLOP/B", "tokens/s", "tokens", "blocks", "slots"),
    *("steps", "requests", "positions", "groups", "share", "×", "requests/h", "USD", "J"),
}
PLAIN = {"value", "unit", "kind", "formula", "source", "label"}
RANGES = ({"p10", "p90"}, {"high"}, {"at_most"}, set())
"""What may stand beside a value: an interval, the upper end of a price, or of an energy."""
CASES = {
    "plain": Scenario("llama-3.1-8b", "h100-sxm"),
    "windowed, shared": Scenario("gemma-3-27b", "l4", 3, "q4_0", "q8_0", 5, 3000, 20),
    "no decode": Scenario("gpt2", "i9-13900k", output_tokens=1),
    "no link": Scenario("phi-4", "m4-max", 2, "fp8", "fp8"),
    "experts": Scenario("gpt-oss-120b", "h100-sxm", 2, "mxfp4", batch=7),
    "latents": Scenario("deepseek-v3", "h200-sxm", 8, "fp8", "fp8", 3),
    "sparse": Scenario("glm-5", "b200-sxm", 8, "fp8", "fp8", 3, 3000, 20),
    "compressed": Scenario("deepseek-v4-pro", "b200-sxm", 8, "fp8", "fp8", 3, 3000, 20),
    "states": Scenario("qwen3-next-80b-a3b", "h100-sxm", 4, batch=5),
    "state space": Scenario("nemotron-3-nano-30b-a3b", "h100-sxm", batch=5),
    "everything": Scenario(
        "llama-3.1-70b",
        "h100-sxm",
        4,
        batch=20,
        prompt_tokens=3000,
        data=2,
        stages=3,
        per_node=8,
        network_gb_s=25,
        engine="trtllm",
        chunk_tokens=1024,
        prefix_hit_rate=0.3,
        speculation=Speculation(3, 0.8, "llama-3.2-1b"),
        offload=Offload(32),
        disaggregation=Disaggregation(8, 25),
        usd_per_hour=2.5,
    ),
    "shared experts": Scenario(
        "deepseek-v3",
        "h200-sxm",
        weights="fp8",
        kv="fp8",
        batch=64,
        data=16,
        experts=True,
        imbalance=1.3,
        speculation=Speculation(2, 0.9, draft_fraction=0.05),
    ),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES), scope="module")
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return json.loads(json.dumps(simulate(request.param).to_document(), allow_nan=False))


def _quantities(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict) and "value" in value:
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _quantities(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _quantities(item, f"{path}[{index}]")


def _bare_numbers(value: Any) -> Iterator[object]:
    if isinstance(value, dict):
        if "value" not in value:
            for item in value.values():
                yield from _bare_numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from _bare_numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def test_the_agreed_names_are_there(document: dict[str, Any]) -> None:
    for name in ("ttft", "itl", "tokens_per_s", "ridge_point"):
        assert "value" in document[name]
    for name in ("weights", "kv_cache", "kv_bytes_per_token", "activations", "total", "capacity"):
        assert document["memory"][name]["unit"] == "B"
    assert document["memory"]["fits"]["unit"] == "bool"
    for step in ("prefill", "decode"):
        for name, unit in (("flops", "FLOP"), ("bytes", "B"), ("intensity", "FLOP/B")):
            assert document[step][name]["unit"] == unit
        assert document[step]["time"]["unit"] == "s"
        assert document[step]["bound"]["value"] in {"compute", "memory"}
        assert len(document[step]["operators"]) > 10


def test_every_number_is_a_quantity_with_its_origin(document: dict[str, Any]) -> None:
    found = list(_quantities(document))
    assert len(found) > 100
    for path, item in found:
        assert set(item) - PLAIN in RANGES, path
        assert set(item) >= PLAIN, path
        assert item["kind"] == "predicted"
        assert item["formula"], path
        assert item["source"], path
        value = item["value"]
        if item["unit"] == "bool":
            assert isinstance(value, bool)
        elif item["unit"] == "bound":
            assert value in {"compute", "memory", "link"}
        else:
            assert item["unit"] in UNITS, path
            assert value is None or (math.isfinite(value) and value >= 0), path
    outside = {key: item for key, item in document.items() if key not in {"scenario", "formats"}}
    assert not list(_bare_numbers(outside))


def test_totals_equal_their_operators(document: dict[str, Any]) -> None:
    asked = document["scenario"]
    prefilling = (asked["disaggregation"] or {}).get("devices") or asked["devices"]
    sizes = {"prefill": prefilling, "decode": asked["devices"]}
    for section, devices in sizes.items():
        step = document[section]
        for name in ("flops", "bytes"):
            total = devices * sum(item[name]["value"] for item in step["operators"])
            assert step[name]["value"] == pytest.approx(total)
        assert step["time"]["value"] == pytest.approx(
            sum(item["time"]["value"] for item in step["operators"])
        )
        ratio = step["flops"]["value"] / step["bytes"]["value"]
        assert step["intensity"]["value"] == pytest.approx(ratio)
    memory = document["memory"]
    parts = sum(memory[name]["value"] for name in ("weights", "kv_cache", "activations"))
    assert memory["total"]["value"] == pytest.approx(parts)
    assert memory["fits"]["value"] is (memory["total"]["value"] <= memory["capacity"]["value"])


def test_the_run_is_echoed_and_explained(document: dict[str, Any]) -> None:
    assert document["model"]["source"]
    assert document["hardware"]["sources"]
    assert all(isinstance(line, str) and line.endswith(".") for line in document["assumptions"])
    again = simulate(Scenario.from_document(document["scenario"])).to_document()
    assert json.loads(json.dumps(again)) == document


def test_floors_lie_under_the_decode_step(document: dict[str, Any]) -> None:
    decode = document["decode"]
    assert decode["bandwidth_floor"]["value"] <= decode["time"]["value"] * (1 + 1e-12)


def test_one_token_has_no_itl() -> None:
    document = simulate(CASES["no decode"]).to_document()
    itl = document["itl"]
    assert isinstance(itl, dict)
    assert (itl["value"], itl["label"]) == (None, "—")
    assert "no gap" in itl["formula"]


def test_formulas_hold_the_values() -> None:
    """A product written out in a formula is the value beside it."""
    document: Any = simulate(CASES["plain"]).to_document()
    weights = document["memory"]["weights"]
    assert weights["formula"] == "8,030,261,248 parameters × 16 bits / 8"
    assert weights["value"] == 8_030_261_248 * 16 / 8
    operators = {item["name"]: item for item in document["prefill"]["operators"]}
    flops = operators["gate and up projection"]["flops"]
    assert flops["formula"] == "512 tokens × 2 × 4,096 × 28,672 × 32 layers"
    assert flops["value"] == 512 * 2 * 4096 * 28_672 * 32
    activations = document["memory"]["activations"]
    assert activations["formula"] == "512 tokens × (4,096 + 43,008) × 2 B"
    assert activations["value"] == 512 * (4096 + 43_008) * 2


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("plain", "2 × 32 layers × 8 key-value heads × 128 × 16 bits / 8"),
        ("latents", "61 layers × 576 B of latent and keys, whatever the number of heads"),
        ("sparse", "78 layers × 788 B of latent and keys, whatever the number of heads"),
        ("compressed", "30 layers × 652 B / 4 + 31 layers × 584 B / 128 tokens an entry"),
        ("states", "2 × 12 layers × 2 key-value heads × 256 × 16 bits / 8"),
    ],
)
def test_formulas_of_the_cache_follow_the_architecture(case: str, words: str) -> None:
    memory: Any = simulate(CASES[case]).to_document()["memory"]
    assert words in memory["kv_bytes_per_token"]["formula"]


@pytest.mark.parametrize("model", [spec.id for spec in ALL_MODELS])
def test_every_model_of_the_catalogue_is_simulated(model: str) -> None:
    scenario = Scenario(model, "h100-sxm", 8, "fp8", "fp8", 2, 300, 5)
    document: Any = json.loads(json.dumps(simulate(scenario).to_document(), allow_nan=False))
    assert document["ttft"]["value"] > document["itl"]["value"] > 0
    memory, spec = document["memory"], get_model(model)
    assert memory["weights"]["value"] >= spec.num_parameters
    assert memory["kv_bytes_per_token"]["value"] == spec.kv_bytes_per_token(8)


def test_the_cache_formula_holds_states_and_copies() -> None:
    memory: Any = simulate(CASES["states"]).to_document()["memory"]
    formula = memory["kv_cache"]["formula"]
    assert formula == (
        "5 requests × (12 layers × 2,048 B × 640 positions × 2 copies + 77,266,944 B of states), "
        "in blocks of 16"
    )
    assert memory["kv_cache"]["value"] == 5 * (12 * 2048 * 640 * 2 + 77_266_944)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_quantity_is_finite(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Quantity(value, "s", "", "")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "—"),
        (True, "bool", "yes"),
        (False, "bool", "no"),
        ("memory", "bound", "memory"),
        (48e9, "B", "48.0 GB / 44.7 GiB"),
    ],
)
def test_labels(value: Any, unit: str, text: str) -> None:
    assert Quantity(value, unit, "", "").label == text
