"""FLOPs and bytes of a step, against torch's own counter, closed forms and the parameter count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from engine.catalog.attention import CompressedAttention, SparseAttention
from engine.catalog.models import ModelSpec, get_model
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep
from engine.simulator.formats import resolve_formats
from engine.simulator.layout import Layout
from tests.engine.simulator.cases import ALL_MODELS, device, tiny

EVERY_MODEL = [pytest.param(spec, id=spec.id) for spec in ALL_MODELS]


def _step(
    model: ModelSpec, weights: str = "bf16", kv: str = "bf16", devices: int = 1
) -> DecoderStep:
    formats = resolve_formats(device(), weights, kv)
    return DecoderStep(model, formats, Layout(tensor=devices))


def _totals(step: DecoderStep, *shapes: SequenceShape) -> dict[str, Any]:
    operators = step.operators(step.measure(shapes))
    return {
        "flops": sum(operator.flops for operator in operators),
        "attention": sum(operator.flops for operator in operators if operator.is_attention),
        "weights": sum(operator.weight_bytes for operator in operators),
        "kv": sum(operator.kv_bytes for operator in operators),
        "by_name": {operator.name: operator for operator in operators},
    }


# ── torch's FLOP counter as the oracle ───────────────────────────────────────────────────────────


def _tiny_config(name: str) -> transformers.PretrainedConfig:
    common: dict[str, Any] = {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "intermediate_size": 160,
        "vocab_size": 512,
        "attn_implementation": "eager",
    }
    if name == "GPT2":
        del common["num_key_value_heads"], common["intermediate_size"]
    elif name != "Qwen2":
        common["head_dim"] = 24
    return getattr(transformers, f"{name}Config")(**common)


def _spec_like(name: str) -> ModelSpec:
    """A catalogue model of the family, shrunk to the oracle's size."""
    family = {"Llama": "llama-3.1-8b", "Qwen2": "qwen2.5-7b", "Qwen3": "qwen3-8b"}
    spec = get_model(family.get(name, "gpt2" if name == "GPT2" else "gemma-2-2b"))
    spec = replace(
        spec,
        num_layers=3,
        hidden_size=64,
        num_attention_heads=4,
        num_kv_heads=4 if name == "GPT2" else 2,
        head_dim=16 if name in {"Qwen2", "GPT2"} else 24,
        intermediate_size=256 if name == "GPT2" else 160,
        vocab_size=512,
    )
    return spec


def _counted(model: Any, ids: torch.Tensor, cache: Any = None) -> tuple[int, int, Any]:
    """FLOPs of products with weights, of the attention core, and the cache, as torch counts."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        out = model(ids, cache=cache, use_cache=True, logits_to_keep=1)
    counts = counter.get_flop_counts()["Global"]
    core = counts.get(torch.ops.aten.bmm, 0)
    return sum(counts.values()) - core, core, out.past_key_values


@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3", "Gemma2", "GPT2"])
def test_flops_equal_those_that_torch_counts(name: str) -> None:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(_tiny_config(name)).eval()
    spec = _spec_like(name)
    step = _step(spec)
    linear, core, cache = _counted(model, torch.zeros((1, 40), dtype=torch.long))
    ours = _totals(step, SequenceShape(0, 40, True))
    # torch counts the whole square of scores, we the causal half: S² against S(S+1)/2 pairs.
    assert ours["attention"] * 2 * 40 // 41 == core
    assert ours["flops"] - ours["attention"] == linear
    linear, core, _ = _counted(model, torch.zeros((1, 1), dtype=torch.long), cache)
    ours = _totals(step, SequenceShape(40, 1, True))
    assert ours["attention"] == core
    assert ours["flops"] - ours["attention"] == linear


# ── closed forms ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_a_decode_step_streams_every_parameter_that_is_not_looked_up(model: ModelSpec) -> None:
    totals = _totals(_step(model), SequenceShape(100, 1, True))
    assert totals["weights"] == 2 * model.num_streamed_parameters
    assert _totals(_step(model, "q4_0"), SequenceShape(100, 1, True))["weights"] == pytest.approx(
        4.5 / 8 * model.num_streamed_parameters
    )
    assert _step(model).streamed_weight_bytes() == totals["weights"]


WHOLE_CACHE = [
    pytest.param(spec, id=spec.id)
    for spec in ALL_MODELS
    if not isinstance(spec.attention, SparseAttention | CompressedAttention)
]


@pytest.mark.parametrize("model", WHOLE_CACHE)
def test_decode_reads_and_writes_its_cache(model: ModelSpec) -> None:
    """Entries are read, one is written; states are read and written, however long the past."""
    context = 5000
    read = model.kv_cache_bytes(context + 1)
    written = model.kv_bytes_per_token() + model.state_bytes_per_sequence
    assert _totals(_step(model), SequenceShape(context, 1, True))["kv"] == read + written


@pytest.mark.parametrize("tied", [True, False])
def test_flops_are_two_a_matrix_parameter_and_token_plus_attention(tied: bool) -> None:
    model = tiny(tied=tied)
    tokens, heads_size = 50, 4 * 24
    per_layer = 64 * (heads_size + 2 * 2 * 24) + heads_size * 64 + 3 * 64 * 160
    head = 64 * 512
    attention = 2 * 4 * heads_size * tokens * (tokens + 1) // 2
    expected = 2 * tokens * 2 * per_layer + 2 * head + attention
    assert _totals(_step(model), SequenceShape(0, tokens, True))["flops"] == expected


def test_the_lm_head_is_paid_by_sampled_positions_only() -> None:
    step = _step(get_model("llama-3.1-8b"))
    head = 2 * 4096 * 128256
    none = _totals(step, SequenceShape(0, 100, False), SequenceShape(0, 100, False))
    one = _totals(step, SequenceShape(0, 100, True), SequenceShape(0, 100, False))
    two = _totals(step, SequenceShape(0, 100, True), SequenceShape(0, 100, True))
    assert one["flops"] - none["flops"] == two["flops"] - one["flops"] == head
    assert none["by_name"]["lm head"].bytes == 0
    # Its weights are read once, however many positions there are.
    assert one["weights"] - none["weights"] == 2 * (4096 * 128256 + 4096)
    assert two["weights"] == one["weights"]


def test_prefill_reads_grouped_heads_once_and_multiplies_all_query_heads() -> None:
    model = get_model("llama-3.1-8b")
    core = _totals(_step(model), SequenceShape(0, 1000, True))["by_name"]["attention"]
    assert core.flops == 4 * 32 * 128 * (1000 * 1001 // 2) * 32
    assert core.kv_bytes == 1000 * 131_072
    assert core.activation_bytes == 1000 * 2 * 4096 * 2 * 32


def test_windowed_layers_are_counted_apart() -> None:
    by_name = _totals(_step(get_model("gemma-3-27b")), SequenceShape(99_999, 1, True))["by_name"]
    per_layer = 2 * 16 * 128 * 2
    assert by_name["attention (windowed)"].kv_bytes == 52 * per_layer * 1024
    assert by_name["attention (global)"].kv_bytes == 10 * per_layer * 100_000
    assert by_name["attention (windowed)"].flops == 4 * 32 * 128 * 1024 * 52


def test_kv_bits_change_the_cache_and_nothing_else() -> None:
    model, shape = get_model("llama-3.1-8b"), SequenceShape(5000, 1, True)
    wide, narrow = _totals(_step(model), shape), _totals(_step(model, kv="q8_0"), shape)
    assert narrow["kv"] == wide["kv"] * 8.5 / 16
    assert (narrow["flops"], narrow["weights"]) == (wide["flops"], wide["weights"])


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_devices_share_the_work_and_keep_norms(devices: int) -> None:
    model = get_model("llama-3.1-8b")
    shape = SequenceShape(0, 64, True)
    alone, shared = _totals(_step(model), shape), _totals(_step(model, devices=devices), shape)
    assert devices * shared["flops"] == alone["flops"]
    norms = 2 * (32 * 2 + 1) * 4096
    assert devices * (shared["weights"] - norms) == alone["weights"] - norms
    moved = shared["by_name"]["all-reduce after attention"].link_bytes
    assert moved == 64 * 4096 * 2 * 32 * 2 * (devices - 1) / devices
    assert shared["by_name"]["logits gather"].link_bytes == 128256 * 2 * (devices - 1) / devices


def test_key_value_heads_are_replicated_not_split() -> None:
    model = get_model("llama-3.1-8b")
    shape = SequenceShape(999, 1, True)
    eight, sixteen = (
        _totals(_step(model, devices=8), shape),
        _totals(_step(model, devices=16), shape),
    )
    assert eight["kv"] == sixteen["kv"]
    three = _totals(_step(model, devices=3), shape)
    assert three["kv"] == 3 * eight["kv"]
