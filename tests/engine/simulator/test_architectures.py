"""Experts, latents, chosen and compressed entries, states: closed forms of one step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.catalog.attention import (
    GlobalAttention,
    HybridMamba2Attention,
    SlidingAttention,
    SparseAttention,
)
from engine.catalog.models import ModelSpec, get_model
from engine.errors import UnsupportedModel
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep
from engine.simulator.formats import resolve_formats
from engine.simulator.layout import Layout
from engine.simulator.memory import PagedTokens, memory_needs
from engine.simulator.operators import Operator
from tests.engine.simulator.cases import ALL_MODELS, batches, device

EVERY_MODEL = st.sampled_from(ALL_MODELS)


def _step(model: ModelSpec, kv: str = "bf16", devices: int = 1) -> DecoderStep:
    return DecoderStep(model, resolve_formats(device(), "bf16", kv), Layout(tensor=devices))


def _operators(step: DecoderStep, *shapes: SequenceShape) -> dict[str, Operator]:
    operators = step.operators(step.measure(shapes))
    assert len({operator.name for operator in operators}) == len(operators)
    return {operator.name: operator for operator in operators}


def _decode(model: str, context: int, kv: str = "bf16", devices: int = 1) -> dict[str, Operator]:
    return _operators(_step(get_model(model), kv, devices), SequenceShape(context - 1, 1, True))


# ── experts ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("tokens", "experts"), [(1, 2), (4, 5.46875), (10_000, 8)])
def test_mixtral_reads_the_experts_that_its_tokens_touch(tokens: int, experts: float) -> None:
    by_name = _operators(_step(get_model("mixtral-8x7b")), SequenceShape(0, tokens, True))
    up, down = by_name["expert gate and up projection"], by_name["expert down projection"]
    matrix = 4096 * 14_336 * 32
    assert up.weight_bytes == experts * 2 * matrix * 2
    assert down.weight_bytes == experts * matrix * 2
    assert (up.flops, down.flops) == (2 * tokens * 2 * 2 * matrix, 2 * tokens * 2 * matrix)
    assert by_name["router"].flops == 2 * tokens * 4096 * 8 * 32
    assert f"{experts:.4g} of 8 experts" in up.bytes_formula


@pytest.mark.parametrize(("tokens", "experts"), [(1, 8), (16, 102), (64, 222), (256, 256)])
def test_deepseek_v3_reads_8_102_222_of_its_256_experts(tokens: int, experts: int) -> None:
    step = _step(get_model("deepseek-v3"))
    batch = [SequenceShape(1000, 1, True)] * tokens
    read = _operators(step, *batch)["expert down projection"].weight_bytes
    assert round(read / (7168 * 2048 * 58 * 2)) == experts


def test_leading_dense_layers_and_shared_experts_of_deepseek_v3() -> None:
    by_name = _decode("deepseek-v3", 100)
    assert by_name["gate and up projection"].flops == 2 * 7168 * 2 * 18_432 * 3
    assert by_name["expert gate and up projection"].flops == 8 * 2 * 7168 * 2 * 2048 * 58
    assert by_name["shared expert gate and up projection"].flops == 2 * 7168 * 2 * 2048 * 58
    assert by_name["mlp norm"].weight_bytes == 61 * 7168 * 2


def test_experts_in_letters_of_a_pattern() -> None:
    by_name = _decode("nemotron-3-nano-30b-a3b", 100)
    assert by_name["expert up projection"].flops == 6 * 2 * 2688 * 1856 * 23
    assert by_name["shared expert up projection"].flops == 2 * 2688 * 3712 * 23
    assert by_name["qkv projection"].flops == 2 * 2688 * (4096 + 2 * 256) * 6
    assert by_name["attention norm"].weight_bytes == (23 + 6) * 2688 * 2
    assert by_name["mlp norm"].weight_bytes == 23 * 2688 * 2


def test_biases_and_sinks_of_gpt_oss() -> None:
    by_name = _decode("gpt-oss-20b", 1000)
    windowed, full = by_name["attention (windowed)"], by_name["attention (global)"]
    assert windowed.kv_bytes == 12 * 128 * 2 * 8 * 64 * 2
    assert full.kv_bytes == 12 * 1000 * 2 * 8 * 64 * 2
    assert windowed.weight_bytes == full.weight_bytes == 12 * 64 * 2
    assert by_name["router"].weight_bytes == 24 * (2880 * 32 + 32) * 2
    up = by_name["expert gate and up projection"]
    assert up.weight_bytes == 24 * 4 * (2880 * 5760 + 5760) * 2


# ── latent attention ─────────────────────────────────────────────────────────────────────────────


def test_latent_decode_is_absorbed() -> None:
    by_name = _decode("deepseek-v3", 4096)
    core = by_name["attention (decode)"]
    assert core.flops == 61 * 2 * 128 * 4096 * (2 * 512 + 64)
    assert core.kv_bytes == 4096 * 70_272
    assert by_name["absorbed projections"].flops == 61 * 2 * 128 * 512 * (128 + 128)
    for name in ("key-value expansion", "attention (prefill)"):
        assert by_name[name].flops == by_name[name].bytes == 0


def test_a_chunk_of_a_prompt_expands_its_whole_context() -> None:
    step = _step(get_model("deepseek-v3"))
    by_name = _operators(step, SequenceShape(4096, 512, False))
    expansion, core = by_name["key-value expansion"], by_name["attention (prefill)"]
    assert expansion.flops == 61 * 2 * (4096 + 512) * 512 * 128 * (128 + 128)
    assert expansion.kv_bytes == (4096 + 512) * 70_272
    pairs = 512 * 4096 + 512 * 513 // 2
    assert core.flops == 61 * 2 * 128 * pairs * (128 + 64 + 128)
    assert core.kv_bytes == 0
    assert by_name["attention (decode)"].bytes == 0


def test_a_mixed_step_runs_both_forms_and_keeps_their_weights_once() -> None:
    step = _step(get_model("deepseek-v3"))
    by_name = _operators(step, SequenceShape(4096, 512, False), SequenceShape(100, 1, True))
    up = 61 * 512 * 128 * 256 * 2
    assert by_name["key-value expansion"].weight_bytes == up
    assert by_name["absorbed projections"].weight_bytes == up
    model = step.model
    embedding = model.vocab_size * model.hidden_size
    assert step.resident_weight_bytes == 2 * (model.num_parameters - embedding)


@pytest.mark.parametrize("model", ["deepseek-v3", "deepseek-v3.2", "kimi-k2", "deepseek-v4-pro"])
def test_a_latent_cache_is_not_divided_by_devices(model: str) -> None:
    one, eight = _decode(model, 10_000), _decode(model, 10_000, devices=8)
    assert [op.kv_bytes for op in eight.values() if not op.link_bytes] == [
        op.kv_bytes for op in one.values()
    ]
    paged = PagedTokens(2, 10_000)
    alone, shared = (
        memory_needs(_step(get_model(model), devices=n), device(), paged, 100) for n in (1, 8)
    )
    assert shared.kv_cache == 8 * alone.kv_cache
    assert shared.kv_bytes_per_token == alone.kv_bytes_per_token


# ── chosen and compressed entries ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("context", [100, 2048, 50_000])
def test_sparse_attention_reads_its_choice_and_all_keys_of_the_indexer(context: int) -> None:
    by_name = _decode("deepseek-v3.2", context, kv="fp8")
    assert by_name["attention (top k)"].kv_bytes == 61 * min(context, 2048) * 656
    assert by_name["indexer scores"].kv_bytes == 61 * context * 132
    assert by_name["kv cache write"].kv_bytes == 48_068


def test_a_sparse_prompt_reads_each_position_once_at_most() -> None:
    step = _step(get_model("glm-5"))
    by_name = _operators(step, SequenceShape(0, 10_000, True))
    pairs = 2048 * 2049 // 2 + (10_000 - 2048) * 2048
    core = by_name["attention (top k)"]
    assert core.flops == 78 * 2 * 64 * pairs * (2 * 512 + 64)
    assert core.kv_bytes == 78 * 10_000 * 576 * 2
    assert by_name["indexer scores"].flops == 78 * 2 * 32 * 128 * (10_000 * 10_001 // 2)


@pytest.mark.parametrize("context", [64, 1001, 100_000])
def test_compressed_attention_reads_window_and_entries(context: int) -> None:
    by_name = _decode("deepseek-v4-flash", context, kv="fp8")
    window = min(context, 128)
    assert by_name["attention (windowed)"].kv_bytes == 2 * window * 584
    assert by_name["attention (CSA)"].kv_bytes == 21 * (min(context // 4, 512) + window) * 584
    assert by_name["attention (HCA)"].kv_bytes == 20 * (context // 128 + window) * 584
    assert by_name["indexer scores"].kv_bytes == 21 * (context // 4) * 68
    # One window entry a layer, and the mean part of the compressed ones.
    assert by_name["kv cache write"].kv_bytes == 43 * 584 + 3514.25


def test_hyper_connections_widen_the_residual_stream() -> None:
    by_name = _decode("deepseek-v4-pro", 100)
    outputs, width = (2 + 4) * 4, 4 * 7168
    assert by_name["mlp stream weights"].flops == 61 * 2 * width * outputs
    assert by_name["mlp residual"].bytes == 61 * (2 * width + 7168) * 2


# ── states ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("context", [2, 100, 100_000])
def test_states_cost_the_same_at_any_context(context: int) -> None:
    next_80b, nemotron = get_model("qwen3-next-80b-a3b"), get_model("nemotron-3-nano-30b-a3b")
    state = _decode(next_80b.id, context)["linear attention state"]
    assert state.kv_bytes == 2 * next_80b.state_bytes_per_sequence
    assert state.flops == 36 * 6 * 32 * 128 * 128
    state = _decode(nemotron.id, context)["mamba state"]
    assert state.kv_bytes == 2 * nemotron.state_bytes_per_sequence
    assert state.flops == 23 * 4 * 64 * 64 * 128


def test_states_are_divided_and_caches_of_full_layers_replicated() -> None:
    model = get_model("qwen3-next-80b-a3b")
    paged = PagedTokens(3, 1600)
    one, eight = (memory_needs(_step(model, devices=n), device(), paged, 10) for n in (1, 8))
    state = 3 * model.state_bytes_per_sequence
    assert one.kv_cache == state + 3 * 1600 * 24_576
    # Two key-value heads on eight devices: four copies.
    assert eight.kv_cache == state + 4 * 3 * 1600 * 24_576


def test_the_output_gate_widens_the_queries() -> None:
    by_name = _decode("qwen3-next-80b-a3b", 10)
    assert by_name["qkv projection"].flops == 12 * 2 * 2048 * (2 * 4096 + 2 * 512)
    assert by_name["output projection"].flops == 12 * 2 * 4096 * 2048


# ── what holds for all ───────────────────────────────────────────────────────────────────────────


# Composing a step for the first time takes a while: no deadline.
@settings(max_examples=60, deadline=None)
@given(model=EVERY_MODEL, devices=st.sampled_from([2, 4, 8]), batch=batches)
def test_devices_conserve_flops_but_for_what_each_does_whole(
    model: ModelSpec, devices: int, batch: list[SequenceShape]
) -> None:
    one, many = _step(model), _step(model, devices=devices)
    whole = {item.name for item in many.sequence if item.replicated}
    alone, shared = _operators(one, *batch), _operators(many, *batch)
    for name, operator in alone.items():
        if name == "qkv projection" and model.num_kv_heads % devices:
            continue  # key-value heads are replicated
        factor = 1 if name in whole else devices
        assert factor * shared[name].flops == pytest.approx(operator.flops)
        if name in whole:
            assert shared[name].weight_bytes == operator.weight_bytes
        # The experts that a step reads are divided, not multiplied (an output's bias is whole).
        if name in {"expert gate and up projection", "expert up projection"}:
            assert devices * shared[name].weight_bytes == pytest.approx(
                operator.weight_bytes, abs=devices
            )


@settings(max_examples=60, deadline=None)
@given(model=EVERY_MODEL, tokens=st.integers(1, 500), more=st.integers(1, 500))
def test_weights_read_grow_with_the_tokens_to_all_that_are_resident(
    model: ModelSpec, tokens: int, more: int
) -> None:
    step = _step(model)
    few, many = step.streamed_weight_bytes(tokens), step.streamed_weight_bytes(tokens + more)
    assert few <= many <= step.resident_weight_bytes
    if model.moe is None:
        assert few == many == step.resident_weight_bytes


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        ("deepseek-v3", {"attention": SlidingAttention(128)}, "latent attention together"),
        ("llama-3.1-8b", {"attention": SparseAttention(8, 64, 16)}, "without a low-rank query"),
        ("deepseek-v2-lite", {"attention": SparseAttention(8, 64, 16)}, "without a low-rank"),
        (
            "llama-3.1-8b",
            {"attention": HybridMamba2Attention("ME*E", 8, 64, 128, 8, 4)},
            "without experts",
        ),
        (
            "llama-3.1-8b",
            {"attention": HybridMamba2Attention("MX*-", 8, 64, 128, 8, 4)},
            "unknown letter",
        ),
    ],
)
def test_parts_that_no_model_combines_are_refused(
    model: str, changes: dict[str, object], words: str
) -> None:
    spec = replace(get_model(model), **changes)
    with pytest.raises(UnsupportedModel, match=words) as caught:
        _step(spec)
    assert caught.value.field == "model"


def test_plain_attention_stays_plain() -> None:
    assert isinstance(get_model("llama-3.1-8b").attention, GlobalAttention)
    assert "attention" in _decode("llama-3.1-8b", 10)
