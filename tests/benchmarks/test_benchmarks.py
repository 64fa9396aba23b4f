"""The benchmark itself: it compares like with like, and its shares are of the right roof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import Calibration
from engine.inference.messages import LaneInfo
from tests.benchmarks.__main__ import main
from tests.benchmarks.goals import verdicts
from tests.benchmarks.roofline import hardware_of, roofline_rate
from tests.benchmarks.workload import FULL, Throughput, Timing, Workload


def lane(dtype: str, number_format: str) -> LaneInfo:
    return LaneInfo(
        dtype, dtype, dtype, "paged", False, number_format, number_format, False, 1, 1, 1, 16
    )


FP32, BF16 = lane("float32", "fp32"), lane("bfloat16", "bf16")


def test_the_promised_workloads_are_measured():
    assert [w.name for w in FULL] == [
        "decode, batch 1",
        "decode, batch 8",
        "decode, batch 32",
        "prefill 512",
        "prefill 2048",
    ]


def test_prompts_are_the_same_for_both_engines_and_differ_within_a_batch():
    workload = Workload(batch=3, prompt_tokens=16, new_tokens=4)
    prompts = workload.prompts(1000)
    assert prompts == workload.prompts(1000)
    assert len({tuple(prompt) for prompt in prompts}) == 3
    assert all(len(prompt) == 16 and 0 <= min(prompt) <= max(prompt) < 1000 for prompt in prompts)


def test_throughput_counts_generated_tokens_in_decode_and_prompt_tokens_in_prefill():
    timings = [Timing(2.0, ()), Timing(4.0, ()), Timing(1.0, ())]
    decode = Throughput.of(Workload(batch=8, prompt_tokens=128, new_tokens=10), timings)
    assert decode == Throughput(median=40.0, low=20.0, high=80.0)
    prefill = Throughput.of(Workload(batch=1, prompt_tokens=512), timings)
    assert prefill.median == 256.0


@pytest.fixture
def model() -> ModelSpec:
    """The shape of the default model, whose weights are 134.5 million numbers."""
    return ModelSpec.dense(
        id="smollm2-135m",
        num_layers=30,
        hidden_size=576,
        num_attention_heads=9,
        num_kv_heads=3,
        head_dim=64,
        intermediate_size=1536,
        vocab_size=49_152,
        tied_embeddings=True,
        max_context=8192,
    )


def machine(bandwidth: float, flops: float) -> HardwareSpec:
    return HardwareSpec(
        id="test",
        name="test",
        vendor="",
        category="cpu",
        memory_bytes=2**34,
        bandwidth=bandwidth,
        dense_flops={"fp32": flops, "bf16": flops},
    )


def test_decode_of_one_is_bound_by_reading_the_weights(model: ModelSpec):
    workload = Workload(batch=1, prompt_tokens=128, new_tokens=64)
    rate = roofline_rate(workload, model, machine(30e9, 1e15), BF16)
    weights = 134_515_008 * 2
    kv = 2 * 30 * 3 * 64 * 2 * (128 + 32)
    # Activations and norms come on top of weights and KV cache, less than 5 % here.
    assert rate == pytest.approx(30e9 / (weights + kv), rel=0.05)
    assert rate < 30e9 / weights


def test_float32_takes_twice_the_time_of_bfloat16_where_memory_binds(model: ModelSpec):
    workload = Workload(batch=1, prompt_tokens=128, new_tokens=64)
    here = machine(30e9, 1e15)
    ratio = roofline_rate(workload, model, here, BF16) / roofline_rate(workload, model, here, FP32)
    assert ratio == pytest.approx(2, rel=0.01)


def test_prefill_is_bound_by_arithmetic_where_bytes_are_free(model: ModelSpec):
    rate = roofline_rate(Workload(1, 512), model, machine(1e18, 400e9), BF16)
    # 2 FLOP for each weight of the layers and token; the LM head runs once; attention comes on top.
    layers = 134_515_008 - 49_152 * 576
    assert 0.8 * 400e9 / (2 * layers) < rate < 400e9 / (2 * layers)


def test_the_roof_is_the_median_of_the_calibrations_between_the_runs():
    calibrations = [
        Calibration(
            bandwidth_bytes_per_s=bandwidth,
            flops_per_s={"fp32": 10 * bandwidth},
            memory_bytes=1,
            device_name="test",
            device_kind="cpu",
            torch_version="0",
            threads=1,
            date="",
        )
        for bandwidth in (1.0, 5.0, 2.0)
    ]
    hardware = hardware_of(calibrations)
    assert hardware.bandwidth == 2.0
    assert hardware.dense_flops == {"fp32": 20.0}


def test_a_run_compares_all_engines_on_the_same_work(tmp_path: Path, capsys):
    options = "--model tiny --device cpu --lane float32 --lane int8-g32-rtn --quick --repeats 1"
    main([*options.split(), "--output", str(tmp_path)])
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    results = {(r["workload"], r["lane"]): r for r in document["results"]}
    workloads = ("decode, batch 1", "decode, batch 3", "prefill 32")
    assert results.keys() == {(w, lane) for w in workloads for lane in ("float32", "int8-g32-rtn")}
    for (_, lane), result in results.items():
        assert len(result["peers"]) == (lane == "float32")
        for rate in (result["ours"], *result["peers"].values()):
            assert 0 < rate["low"] <= rate["median"] <= rate["high"]
            assert rate.get("ratio", 1) == pytest.approx(
                result["ours"]["median"] / rate["median"] if "ratio" in rate else 1
            )
        share = result["ours"]["median"] / result["roofline"]["value"]
        assert result["share_of_roofline"] == pytest.approx(share)
    assert results["decode, batch 1", "float32"]["same_tokens"] is True
    assert results["prefill 32", "float32"]["same_tokens"] is True
    sizes = {(m["engine"], m["lane"]): m["weight_bytes"] for m in document["memory"]}
    assert sizes["First Token", "int8-g32-rtn"] < sizes["First Token", "float32"]
    table = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip() in table
    assert "| prefill 32 | float32 |" in table


def test_goals_are_judged_by_the_numbers():
    rates = {
        ("decode, batch 1", "bfloat16", ""): 100.0,
        ("decode, batch 1", "bfloat16", "llama.cpp BF16"): 100.0,
        ("decode, batch 1", "int8-g32-rtn", ""): 80.0,
        ("decode, batch 1", "int8-g32-rtn", "llama.cpp Q8_0"): 100.0,
        ("decode, batch 8", "bfloat16", ""): 300.0,
        ("decode, batch 8", "int8-g32-rtn", ""): 650.0,
        ("decode, batch 8", "bfloat16", "llama.cpp BF16"): 500.0,
        ("prefill 512", "bfloat16", ""): 1200.0,
        ("prefill 512", "bfloat16", "transformers 5"): 1000.0,
    }
    judged = verdicts(rates, {("decode, batch 1", "bfloat16"): 0.96})
    assert [(round(v.value, 2), v.word) for v in judged] == [
        (1.0, "met"),
        (0.8, "missed"),
        (0.96, "aim reached"),
        (1.3, "aim reached"),
        (1.2, "missed"),
    ]


def test_without_peers_nothing_is_judged():
    assert verdicts({("decode, batch 8", "bfloat16", ""): 300.0}, {}) == []
