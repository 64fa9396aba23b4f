"""Numbers that people look up, exactly: of the catalogue, and through a whole simulation."""

from __future__ import annotations

from typing import Any

import pytest

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.catalog.precision import get_format
from engine.catalog.units import bytes_label
from engine.scheduling.blocks import blocks_for
from engine.simulator.context_cost import FlopWeighting, context_cost
from engine.simulator.scenario import Scenario, simulate

GIB = 2**30


def _document(model: str, hardware: str = "h100-sxm", **options: Any) -> Any:
    return simulate(Scenario(model, hardware, **options)).to_document()


KV_BYTES = {
    "gpt2": 36_864,
    "llama-2-7b": 524_288,
    "llama-2-13b": 819_200,
    "llama-2-70b": 327_680,
    "llama-3.1-8b": 131_072,
    "llama-3.1-405b": 516_096,
    "mistral-7b-v0.1": 131_072,
    "mistral-7b-v0.3": 131_072,
    "smollm2-135m": 23_040,
    "qwen3-0.6b": 114_688,
    "deepseek-v3": 70_272,
}


@pytest.mark.parametrize(("model", "expected"), KV_BYTES.items())
def test_kv_bytes_per_token_at_16_bits(model: str, expected: int) -> None:
    spec = get_model(model)
    assert spec.kv_bytes_per_token(16) == expected
    assert _document(model)["memory"]["kv_bytes_per_token"]["value"] == expected


@pytest.mark.parametrize(("prompt", "output"), [(4096, 1), (4095, 1), (3969, 128)])
def test_llama_2_13b_at_4096_tokens(prompt: int, output: int) -> None:
    cache = _document("llama-2-13b", prompt_tokens=prompt, output_tokens=output)["memory"]
    assert cache["kv_cache"]["value"] == 3_355_443_200 == 3.125 * GIB
    assert cache["kv_cache"]["label"] == "3.4 GB / 3.1 GiB"


def test_qwen3_0_6b_at_40960_tokens() -> None:
    memory = _document("qwen3-0.6b", prompt_tokens=40_960, output_tokens=1)["memory"]
    assert memory["kv_cache"]["value"] == 4.375 * GIB


def test_gemma_3_27b_at_131072_tokens() -> None:
    spec = get_model("gemma-3-27b")
    memory = _document("gemma-3-27b", prompt_tokens=131_072, output_tokens=1)["memory"]
    assert memory["kv_cache"]["value"] == spec.kv_cache_bytes(131_072)
    assert memory["kv_cache"]["value"] / GIB == pytest.approx(10.41, abs=0.005)
    assert spec.kv_bytes_per_token(16) * 131_072 == 62 * GIB


def test_int4_weights_leave_the_cache_as_it_is() -> None:
    for weights in ("int4-g128", "awq"):
        memory = _document("llama-3.1-8b", weights=weights)["memory"]
        assert memory["kv_bytes_per_token"]["value"] == 131_072
    assert memory["weights"]["value"] == 8_030_261_248 * 4.15625 / 8


@pytest.mark.parametrize(
    ("name", "bits"),
    [("q4_0", 4.5), ("q4_1", 5.0), ("q8_0", 8.5), ("q6_k", 6.5625), ("int4-g128", 4.156)],
)
def test_bits_a_weight_with_scales(name: str, bits: float) -> None:
    assert get_format(name).bits == pytest.approx(bits, abs=0.0005)


@pytest.mark.parametrize(
    ("hardware", "ridge"), [("h100-sxm", 295), ("a100-80-sxm", 153), ("a10", 208)]
)
def test_ridge_points(hardware: str, ridge: int) -> None:
    assert round(get_hardware(hardware).ridge_point()) == ridge
    assert round(_document("llama-3.1-8b", hardware)["ridge_point"]["value"]) == ridge


def test_llama_3_8b_resident_and_streamed() -> None:
    memory = _document("llama-3.1-8b")["memory"]
    assert round(memory["weights"]["value"] / 1e9, 2) == 16.06
    assert memory["resident"]["value"] == memory["weights"]["value"]
    assert round(memory["streamed"]["value"] / 1e9, 2) == 15.01


def test_llama_2_7b_on_a100_takes_6_6_ms_a_token() -> None:
    """6.6 ms holds with a few hundred tokens of cache, or with the look-up table counted in.

    The weights that a step reads take 6.48 ms by themselves; the cache adds 0.26 µs a token, so
    the floor is 6.6 ms (rounded) from 268 to 656 tokens of context. All resident weights, the
    input embedding too, would take 6.61 ms.
    """
    document = _document("llama-2-7b", "a100-80-sxm", weights="fp16", kv="fp16")
    assert round(document["itl"]["value"] * 1e3, 1) == 6.6
    assert round(document["decode"]["bandwidth_floor"]["value"] * 1e3, 1) == 6.6
    assert round(document["decode"]["weights_floor"]["value"] * 1e3, 2) == 6.61
    assert round(document["memory"]["streamed"]["value"] / 2039e9 * 1e3, 2) == 6.48


def test_mixtral_8x7b() -> None:
    spec = get_model("mixtral-8x7b")
    assert round(2 * spec.num_parameters / 1e9, 1) == 93.4
    # 25.8 GB a token counts the whole input embedding, of which one row is read: 25.5 without.
    embedding = spec.vocab_size * spec.hidden_size
    assert round(2 * (spec.num_streamed_parameters + embedding) / 1e9, 1) == 25.8
    assert round(2 * spec.num_streamed_parameters / 1e9, 1) == 25.5
    assert spec.moe is not None
    assert round(spec.moe.expected_experts(4), 2) == 5.47
    memory = _document("mixtral-8x7b")["memory"]
    assert memory["resident"]["value"] == 2 * spec.num_parameters
    assert memory["streamed"]["value"] == 2 * spec.num_streamed_parameters
    four = _document("mixtral-8x7b", batch=4)["memory"]
    assert "5.469 instead of 2" in four["streamed"]["formula"]
    # The further experts of four tokens: three matrices each, in every layer.
    touched = 8 * (1 - (1 - 2 / 8) ** 4) - 2
    more = touched * 3 * 4096 * 14_336 * 32 * 2
    assert four["streamed"]["value"] - memory["streamed"]["value"] == pytest.approx(more)


@pytest.mark.parametrize(("tokens", "experts"), [(1, 8), (16, 102), (64, 222)])
def test_distinct_experts_of_256_with_top_8(tokens: int, experts: int) -> None:
    moe = get_model("deepseek-v3").moe
    assert moe is not None
    assert (moe.num_experts, moe.top_k) == (256, 8)
    assert round(moe.expected_experts(tokens)) == experts


def test_17_tokens_in_blocks_of_16() -> None:
    assert blocks_for(17) == 2
    memory = _document("smollm2-135m", prompt_tokens=17, output_tokens=1)["memory"]
    assert memory["kv_blocks"]["value"] == 2
    assert memory["unused_slots"]["value"] == 15
    assert memory["kv_cache"]["value"] == 32 * 23_040


def test_48_gb_is_always_labelled() -> None:
    assert bytes_label(get_hardware("l40s").memory_bytes) == "48.0 GB / 44.7 GiB"
    memory = _document("llama-3.1-8b", "l40s")["memory"]
    assert memory["capacity"]["label"] == "48.0 GB / 44.7 GiB"
    assert memory["capacity"]["value"] == 48_000_000_000


def test_rtx_4090_is_dense_with_fp32_accumulation() -> None:
    card = get_hardware("rtx-4090")
    assert round(card.dense_flops["fp16"] / 1e12) == 165
    assert round((card.fp16_accumulate_flops or 0) / 1e12) == 330
    assert round(_document("llama-3.1-8b", "rtx-4090")["peak"]["value"] / 1e12) == 165


def test_deepseek_caches_at_a_million_tokens() -> None:
    tokens = 1_048_576
    older, newer = get_model("deepseek-v3.2"), get_model("deepseek-v4-pro")
    assert round(older.kv_cache_bytes(tokens, 8) / 1e9, 2) == 50.40
    assert round(newer.kv_cache_bytes(tokens, 8) / 1e9, 2) == 5.28
    flash = get_model("deepseek-v4-flash")
    assert round(flash.kv_cache_bytes(tokens, 8) / 1e9, 3) == 3.688


def test_deepseek_flops_and_caches_as_published() -> None:
    """10.5 % of the cache and 27.2 % of the FP8-equivalent FLOPs at 1,048,576 tokens."""
    older, newer, flash = (
        context_cost(
            get_model(f"deepseek-{name}"), 1_048_576, weighting=FlopWeighting.FP8_EQUIVALENT
        )
        for name in ("v3.2", "v4-pro", "v4-flash")
    )
    assert round(older.kv_bytes / 1e9, 2) == 50.40
    assert round(newer.kv_bytes / 1e9, 2) == 5.28
    assert round(newer.kv_bytes / older.kv_bytes * 100, 1) == 10.5
    assert round(newer.flops / older.flops * 100, 1) == 27.2
    assert round(flash.kv_bytes / older.kv_bytes * 100, 1) == 7.3
    assert round(flash.flops / older.flops * 100, 1) == 10.3
