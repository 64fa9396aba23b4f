"""Counts that follow from the structures, against two other programs: transformers and figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from engine.catalog.attention import CompressedAttention, InterleavedAttention, SlidingAttention
from engine.catalog.kv_cache import kv_groups
from engine.catalog.models import ModelSpec, all_models, get_model
from engine.catalog.parts import Mlp, QkNorm
from engine.errors import UnknownName

FIGURES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "model_figures.json").read_text(encoding="utf-8")
)["models"]
EVERY_MODEL = [pytest.param(spec, id=spec.id) for spec in all_models()]


def test_the_catalogue_holds_every_model_once_with_a_source() -> None:
    assert {spec.id for spec in all_models()} == FIGURES.keys()
    assert len(all_models()) == len(FIGURES) == 53
    assert all(spec.source for spec in all_models())


@pytest.mark.parametrize("spec", EVERY_MODEL)
def test_parameters(spec: ModelSpec) -> None:
    figures = FIGURES[spec.id]
    left_out = figures.get("left_out", 0)
    assert spec.num_parameters == figures["params"] + left_out
    assert spec.num_streamed_parameters == figures["active"] + left_out


@pytest.mark.parametrize("spec", EVERY_MODEL)
def test_kv_bytes_per_token(spec: ModelSpec) -> None:
    figures = FIGURES[spec.id]["kv"]
    below = figures.get("bf16_bytes_per_token_below_window")
    assert spec.kv_bytes_per_token(16) == figures.get("bf16_bytes_per_token", below)
    assert spec.state_bytes_per_sequence == figures.get("state_bytes_per_sequence", 0)
    sparse = figures.get("fp8_ds_mla_plus_fp8_indexer_bytes_per_token")
    compressed = figures.get("fp8_fp4idx_bytes_per_token")
    if sparse is not None:
        assert spec.kv_bytes_per_token(8) == sparse
    if compressed is not None:
        assert spec.kv_bytes_per_token(8) == pytest.approx(compressed, abs=0.005)
        windows = [group for group in kv_groups(spec, 8) if group.window is not None]
        assert (
            sum(group.bytes_for(10**6) for group in windows)
            == (figures["window_constant_bytes_fp8"])
        )


@pytest.mark.parametrize("spec", EVERY_MODEL)
def test_windows(spec: ModelSpec) -> None:
    """The figures give layers and bytes below and beyond the window."""
    figures = FIGURES[spec.id]["kv"]
    if "window" not in figures:
        return
    pattern = spec.attention
    assert isinstance(pattern, SlidingAttention | InterleavedAttention)
    window = figures["window"]
    assert pattern.window == window
    if isinstance(pattern, SlidingAttention):
        assert spec.kv_cache_bytes(10 * window) == figures["max_bytes"]
        return
    counts = {group.window: group.layers for group in pattern.window_groups(spec.num_layers)}
    assert counts == {None: figures["global_layers"], window: figures["local_layers"]}
    grown = spec.kv_cache_bytes(window + 1) - spec.kv_cache_bytes(window)
    assert grown == figures["bf16_bytes_per_token_beyond_window"]


def test_compressed_layers_are_counted_by_their_ratio() -> None:
    for model_id in ("deepseek-v4-pro", "deepseek-v4-flash"):
        spec = get_model(model_id)
        assert isinstance(spec.attention, CompressedAttention)
        assert len(spec.attention.compress_ratios) == spec.num_layers
        figures = FIGURES[model_id]["kv"]
        assert spec.attention.csa_layers == figures["csa_layers"]
        assert spec.attention.hca_layers == figures["hca_layers"]


def test_tied_and_untied_differ_by_one_matrix_and_stream_the_same() -> None:
    common: dict[str, Any] = {
        "id": "x",
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": 1000,
        "max_context": 512,
    }
    tied = ModelSpec.dense(tied_embeddings=True, **common)
    untied = ModelSpec.dense(tied_embeddings=False, **common)
    assert untied.num_parameters - tied.num_parameters == 1000 * 64
    assert untied.num_streamed_parameters == tied.num_streamed_parameters == tied.num_parameters


def test_query_heads_and_hidden_size_do_not_enter_the_cache() -> None:
    spec = get_model("qwen3-0.6b")
    assert spec.head_dim != spec.hidden_size // spec.num_attention_heads
    assert spec.kv_bytes_per_token(16) == 28 * 2 * 8 * 128 * 2


@given(tokens=st.integers(0, 200_000), more=st.integers(0, 200_000))
def test_a_global_cache_is_linear_and_a_windowed_one_never_larger(tokens: int, more: int) -> None:
    spec = get_model("llama-3.1-8b")
    both = spec.kv_cache_bytes(tokens) + spec.kv_cache_bytes(more)
    assert both == spec.kv_cache_bytes(tokens + more)
    windowed = get_model("gemma-3-27b")
    each = windowed.kv_bytes_per_token(16)
    assert windowed.kv_cache_bytes(tokens) <= tokens * each
    assert windowed.kv_cache_bytes(tokens) <= windowed.kv_cache_bytes(tokens + more)


@given(tokens=st.integers(1, 100_000))
def test_whole_blocks_hold_at_least_the_tokens_and_less_than_a_block_more(tokens: int) -> None:
    spec = get_model("llama-2-7b")
    paged = spec.kv_cache_bytes(tokens, 16, 16)
    assert 0 <= paged - spec.kv_cache_bytes(tokens) < 16 * spec.kv_bytes_per_token(16)
    assert paged % (16 * spec.kv_bytes_per_token(16)) == 0


def test_ids_are_found_in_any_case_and_unknown_ones_name_the_field() -> None:
    assert get_model("Llama-3.1-8B") is get_model("llama-3.1-8b")
    with pytest.raises(UnknownName) as caught:
        get_model("gpt-5")
    assert caught.value.field == "model"


def test_experts_that_tokens_touch() -> None:
    moe = get_model("mixtral-8x7b").moe
    assert moe is not None
    assert moe.expected_experts(1) == pytest.approx(2)
    assert moe.expected_experts(10_000) == pytest.approx(8)


# ── transformers as the oracle: the same structure built on the meta device ─────────────────────


def _common(spec: ModelSpec) -> dict[str, Any]:
    return {
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_attention_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "intermediate_size": spec.intermediate_size,
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": spec.tied_embeddings,
    }


def _with_head_dim(spec: ModelSpec) -> dict[str, Any]:
    return {**_common(spec), "head_dim": spec.head_dim}


def _gpt2(spec: ModelSpec) -> dict[str, Any]:
    return {
        "n_embd": spec.hidden_size,
        "n_layer": spec.num_layers,
        "n_head": spec.num_attention_heads,
        "vocab_size": spec.vocab_size,
    }


def _experts(spec: ModelSpec) -> dict[str, Any]:
    assert spec.moe is not None
    return {
        **_with_head_dim(spec),
        "num_local_experts": spec.moe.num_experts,
        "num_experts_per_tok": spec.moe.top_k,
    }


def _compressed(spec: ModelSpec) -> dict[str, Any]:
    assert spec.moe is not None
    assert isinstance(spec.attention, CompressedAttention)
    pattern = spec.attention
    return {
        **_with_head_dim(spec),
        "moe_intermediate_size": spec.moe.expert_intermediate,
        "n_routed_experts": spec.moe.num_experts,
        "q_lora_rank": pattern.q_lora_rank,
        "o_groups": pattern.o_groups,
        "o_lora_rank": pattern.o_lora_rank,
        "index_topk": pattern.index_topk,
        "compress_ratios": list(pattern.compress_ratios),
    }


ORACLES: dict[str, tuple[str, Callable[[ModelSpec], dict[str, Any]]]] = {
    "gpt2": ("GPT2Config", _gpt2),
    "llama-3.1-8b": ("LlamaConfig", _common),
    "llama-3.2-1b": ("LlamaConfig", _with_head_dim),
    "smollm2-135m": ("LlamaConfig", _common),
    "mistral-7b-v0.1": ("MistralConfig", _with_head_dim),
    "qwen2.5-0.5b": ("Qwen2Config", _common),
    "qwen3-0.6b": ("Qwen3Config", _with_head_dim),
    "gemma-2-2b": ("Gemma2Config", _with_head_dim),
    "gemma-3-27b": ("Gemma3TextConfig", _with_head_dim),
    "phi-3-mini-4k": ("Phi3Config", _common),
    "gpt-oss-20b": ("GptOssConfig", _experts),
    "minimax-m2.5": ("MiniMaxM2Config", _experts),
    "deepseek-v4-flash": ("DeepseekV4Config", _compressed),
}


@pytest.mark.parametrize(("model_id", "oracle"), ORACLES.items(), ids=ORACLES)
def test_parameters_equal_those_of_transformers(
    model_id: str, oracle: tuple[str, Callable[[ModelSpec], dict[str, Any]]]
) -> None:
    import torch

    spec = get_model(model_id)
    config_class, arguments = oracle
    config = getattr(transformers, config_class)(**arguments(spec))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == spec.num_parameters


def test_structures_use_the_enumerations() -> None:
    assert get_model("gpt2").mlp is Mlp.GELU2
    assert get_model("gemma-3-1b").extras.qk_norm is QkNorm.PER_HEAD
    assert {spec.id for spec in all_models() if spec.is_dense} == {
        spec.id for spec in all_models() if spec.arch.startswith("dense")
    }
