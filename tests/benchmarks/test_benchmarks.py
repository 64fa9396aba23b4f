"""The benchmark itself: it compares like with like, and its shares are of the right roof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import Calibration
from engine.inference.messages import LaneInfo
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.benchmarks.__main__ import main
from tests.benchmarks.book import Book, OtherResults
from tests.benchmarks.engines import Lane
from tests.benchmarks.goals import verdicts
from tests.benchmarks.resident import Footprint
from tests.benchmarks.roofline import hardware_of, roofline_rate
from tests.benchmarks.workload import FULL, Prompt, Spread, Timing, Workload, tokens_per_second


def lane(dtype: str, number_format: str) -> LaneInfo:
    return LaneInfo(
        dtype, dtype, dtype, "paged", False, number_format, number_format, False, 1, 1, 1, 16
    )


FP32, BF16 = lane("float32", "fp32"), lane("bfloat16", "bf16")


def test_the_promised_workloads_are_measured():
    assert FULL.names == [
        "decode, batch 1",
        "decode, batch 8",
        "decode, batch 32",
        "prefill 512",
        "prefill 2048",
        "TTFT at 512",
    ]


def test_prompts_are_the_same_for_both_engines_and_differ_within_a_batch():
    workload = Workload(batch=3, prompt_tokens=16, new_tokens=4)
    prompts = workload.prompts(1000)
    assert prompts == workload.prompts(1000)
    assert len({tuple(prompt) for prompt in prompts}) == 3
    assert all(len(prompt) == 16 and 0 <= min(prompt) <= max(prompt) < 1000 for prompt in prompts)


def test_throughput_counts_generated_tokens_in_decode_and_prompt_tokens_in_prefill():
    timings = [Timing(2.0, ()), Timing(4.0, ()), Timing(1.0, ())]
    decode = tokens_per_second(Workload(batch=8, prompt_tokens=128, new_tokens=10), timings)
    assert decode == Spread(median=40.0, low=20.0, high=80.0)
    prefill = tokens_per_second(Workload(batch=1, prompt_tokens=512), timings)
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


COMMON = ["--model", "tiny", "--device", "cpu", "--quick", "--repeats", "1"]


def test_a_run_compares_all_engines_on_the_same_work(tmp_path: Path, capsys):
    output = ["--output", str(tmp_path)]
    main([*COMMON, *output, "--lane", "float32", "--lane", "int8-g32-rtn"])
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    lanes = {lane["lane"]: lane for lane in document["lanes"]}
    assert list(lanes) == ["float32", "int8-g32-rtn"]
    for name, lane in lanes.items():
        assert [r["workload"] for r in lane["results"]] == document["workloads"][:3]
        for result in (*lane["results"], lane["first_token"]):
            assert len(result["peers"]) == (name == "float32")
            for spread in (result["ours"], *result["peers"].values()):
                assert 0 < spread["low"] <= spread["median"] <= spread["high"]
        for result in lane["results"]:
            share = result["ours"]["median"] / result["roofline"]["value"]
            assert result["share_of_roofline"] == pytest.approx(share)
        assert {"date", "machine", "repeats"} <= lane.keys()
        assert lane["machine"]["torch"]
    alone, _, prefill = lanes["float32"]["results"]
    assert alone["same_tokens"] is prefill["same_tokens"] is True
    (peer,) = alone["peers"].values()
    assert peer["ratio"] == pytest.approx(alone["ours"]["median"] / peer["median"])
    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip() in page
    assert "| prefill 32 | float32 |" in page

    first = lanes["float32"]["first_token"]
    assert (first["prompt_tokens"], first["same_token"]) == (32, True)
    (peer,) = first["peers"].values()
    assert peer["ratio"] == pytest.approx(peer["median"] / first["ours"]["median"])
    assert first["share_of_roofline"] == pytest.approx(
        first["roofline"]["value"] / first["ours"]["median"]
    )
    assert "Time to first token, 32 prompt tokens" in page

    sizes = {(name, m["engine"]): m for name, lane in lanes.items() for m in lane["memory"]}
    ours = [sizes[name, "First Token"]["weight_bytes"] for name in lanes]
    assert ours[1] < ours[0]
    assert len(sizes) == 3
    for memory in sizes.values():
        assert 0 < memory["pss_bytes"] <= memory["rss_bytes"] < 300e6


def lane_document(lane: str, rate: float) -> dict:
    """As much of a lane's results as the book and the page read."""
    spread = {"median": rate, "low": rate, "high": rate, "unit": "tokens/s", "kind": "measured"}
    result = {
        "workload": "decode, batch 1",
        "ours": spread,
        "peers": {"llama.cpp BF16": {**spread, "median": 100.0, "ratio": rate / 100}},
        "roofline": {"value": 200.0, "unit": "tokens/s", "kind": "predicted"},
        "share_of_roofline": rate / 200,
        "same_tokens": None,
    }
    machine = {
        "device": "cuda", "device_name": "a GPU", "threads": 1, "python": "3", "torch": "2",
        "transformers": "5", "llama_cpp": None, "bandwidth_bytes_per_s": 4e12,
        "bandwidth_range": [3e12, 5e12], "flops_per_s": {"bf16": 9e14}, "load_before": 0.1,
    }  # fmt: skip
    memory = {
        "engine": "First Token", "weight_bytes": 270_000_000, "rss_bytes": 500_000_000,
        "pss_bytes": None, "device_bytes": 300_000_000, "kind": "measured",
    }  # fmt: skip
    return {
        "lane": lane, "date": "2026-01-02 03:04 UTC", "repeats": 5, "machine": machine,
        "results": [result], "memory": [memory],
    }  # fmt: skip


ABOUT = {
    "model": "m", "source_format": "Q4_1", "device": "cuda", "workloads": ["decode, batch 1"]
}  # fmt: skip


def test_a_cut_run_keeps_the_lanes_it_had_and_is_gone_on_with(tmp_path: Path):
    book = Book(tmp_path, ABOUT, keep=False)
    book.add(lane_document("file", 50.0), ["bfloat16", "file"])
    book = Book(tmp_path, ABOUT, keep=True)
    assert "file" in book
    assert "bfloat16" not in book
    book.add(lane_document("bfloat16", 120.0), ["bfloat16", "file"])
    # Measured again, a lane takes the place of what was there.
    page = Book(tmp_path, ABOUT, keep=True).add(lane_document("file", 60.0), ["bfloat16", "file"])
    assert page == (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    rates = [(x["lane"], x["results"][0]["ours"]["median"]) for x in document["lanes"]]
    assert rates == [("bfloat16", 120.0), ("file", 60.0)]
    assert [goal["value"] for goal in document["goals"]] == [1.2, 0.6, 0.6]
    Book(tmp_path, ABOUT, keep=False).add(lane_document("file", 1.0), [])
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [lane["lane"] for lane in document["lanes"]] == ["file"]


@pytest.mark.parametrize("other", [{"model": "n"}, {"device": "cpu"}, {"workloads": []}])
def test_results_of_something_else_are_not_kept_on(tmp_path: Path, other: dict):
    Book(tmp_path, ABOUT, keep=False).add(lane_document("file", 50.0), [])
    with pytest.raises(OtherResults, match=next(iter(other))):
        Book(tmp_path, {**ABOUT, **other}, keep=True)


def test_a_page_of_a_gpu_has_the_same_tables(tmp_path: Path):
    page = Book(tmp_path, ABOUT, keep=False).add(lane_document("bfloat16", 120.0), [])
    assert "| decode, batch 1 | bfloat16 | 120 (120 – 120) | — | — | BF16 100" in page
    assert "| 200 | 60% | — |" in page
    assert "a GPU (cuda, 1 threads)" in page
    assert "| bfloat16 | First Token | 270 MB | 500 MB | — | 300 MB |" in page


def test_the_peers_of_a_lane_have_the_same_bits():
    assert Lane("tiny", "cpu", "float32").kinds == ["First Token", "transformers"]
    assert Lane("tiny", "cpu", "int8-g32-rtn").kinds == ["First Token"]


@pytest.mark.parametrize("num_tokens", [1, 2, 33, 512])
def test_a_prompt_has_the_length_that_was_asked_for(num_tokens: int):
    tokenizer = tiny_random_checkpoint().tokenizer()
    prompt = Prompt.of_length(tokenizer, num_tokens)
    assert len(prompt.token_ids) == num_tokens
    assert tokenizer.encode_prompt(prompt.text) == list(prompt.token_ids)


def test_the_growth_is_what_was_added():
    before, after = Footprint(100, 80, None), Footprint(350, 200, None)
    assert after.since(before) == Footprint(250, 120, None)
    assert Footprint(1, None, 70).since(Footprint(1, 5, 20)) == Footprint(0, None, 50)


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
