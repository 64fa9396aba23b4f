"""FLOPs of other than dense models, against what torch counts while transformers runs them.

Each model is a catalogue model shrunk to a few thousand parameters. Experts, recurrences and
latents run in transformers' own plain form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from engine.catalog.models import ModelSpec, get_model
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep
from engine.simulator.formats import resolve_formats
from engine.simulator.operators import Operator, Role
from tests.engine.simulator.cases import device

PROMPT, CHUNK = 40, 20

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "intermediate_size": 160,
    "vocab_size": 512,
}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT: dict[str, Any] = {
    **EXPERTS,
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 20,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
HEADS: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 24}
CONFIGS: dict[str, dict[str, Any]] = {
    "Mixtral": {**HEADS, "num_local_experts": 8, "num_experts_per_tok": 2},
    "Qwen3Moe": {**HEADS, **EXPERTS, "num_experts": 8},
    "Glm4Moe": {
        **HEADS,
        **EXPERTS,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "attention_bias": True,
    },
    "GptOss": {
        **HEADS,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "DeepseekV2": {**LATENT, "q_lora_rank": None, "n_shared_experts": 2},
    "DeepseekV3": LATENT,
    "DeepseekV32": {**LATENT, "index_topk": 8, "index_n_heads": 2, "index_head_dim": 16},
    "DeepseekV4": {
        # There both names mean the size of an expert.
        **EXPERTS,
        "intermediate_size": 48,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "n_routed_experts": 8,
        "q_lora_rank": 24,
        "o_groups": 2,
        "o_lora_rank": 16,
        "index_topk": 4,
        "index_n_heads": 2,
        "index_head_dim": 16,
        "compress_ratios": [0, 4, 128],
        "sliding_window": 8,
        "qk_rope_head_dim": 8,
    },
    "Qwen3Next": {
        **HEADS,
        **EXPERTS,
        "num_experts": 8,
        "shared_expert_intermediate_size": 40,
        "num_hidden_layers": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
    },
    "NemotronH": {
        **HEADS,
        **EXPERTS,
        "hybrid_override_pattern": "ME*E",
        "num_hidden_layers": 4,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 16,
        "n_groups": 2,
        "conv_kernel": 4,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 40,
        "n_group": 1,
        "topk_group": 1,
    },
}
CATALOGUE = {
    "Mixtral": "mixtral-8x7b",
    "Qwen3Moe": "qwen3-30b-a3b",
    "Glm4Moe": "glm-4.5-air",
    "GptOss": "gpt-oss-20b",
    "DeepseekV2": "deepseek-v2-lite",
    "DeepseekV3": "deepseek-v3",
    "DeepseekV32": "deepseek-v3.2",
    "DeepseekV4": "deepseek-v4-flash",
    "Qwen3Next": "qwen3-next-80b-a3b",
    "NemotronH": "nemotron-3-nano-30b-a3b",
}


def _attention(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The catalogue's names for the config's numbers, by kind of attention."""
    if name == "GptOss":
        return {"window": config["sliding_window"]}
    if name == "DeepseekV32":
        return {key: config[key] for key in ("index_n_heads", "index_head_dim", "index_topk")}
    if name == "DeepseekV4":
        same = ("index_n_heads", "index_head_dim", "index_topk", "q_lora_rank", "o_groups")
        ratios = tuple(config["compress_ratios"])
        more = {key: config[key] for key in (*same, "o_lora_rank", "qk_rope_head_dim")}
        return {"window": 8, "compress_ratios": ratios, **more}
    if name == "Qwen3Next":
        same = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
        return {f"linear_{key}": config[f"linear_{key}"] for key in same}
    if name == "NemotronH":
        same = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups")
        return {"layer_pattern": "ME*E", **{key: config[key] for key in same}}
    return {}


def _spec(name: str) -> ModelSpec:
    """The catalogue's model of the family with the sizes of the config."""
    config = {**SHAPE, **CONFIGS[name]}
    base = get_model(CATALOGUE[name])
    assert base.moe is not None
    expert = config.get("moe_intermediate_size", SHAPE["intermediate_size"])
    shared = {"Qwen3Next": 40, "NemotronH": 40}.get(name, expert)
    moe = replace(
        base.moe,
        num_experts=8,
        top_k=2,
        expert_intermediate=expert,
        first_dense_layers=config.get("first_k_dense_replace", 0),
        shared_intermediate=shared if base.moe.num_shared_experts else 0,
    )
    mla = base.mla
    if mla is not None:
        keys = ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim")
        sizes = {key: config[key] or 0 for key in (*keys, "v_head_dim")}
        mla = replace(mla, **sizes)
    return replace(
        base,
        num_layers=config["num_hidden_layers"],
        hidden_size=64,
        num_attention_heads=4,
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim", 24),
        intermediate_size=SHAPE["intermediate_size"],
        vocab_size=512,
        attention=replace(base.attention, **_attention(name, config)),
        moe=moe,
        mla=mla,
    )


@dataclass(frozen=True)
class Counted:
    """FLOPs as torch counts them, by its own names."""

    linear: int
    batched: int
    convolution: int


def _counted(model: Any, tokens: int, cache: Any = None) -> tuple[Counted, Any]:
    ids = torch.zeros((1, tokens), dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    counts = counter.get_flop_counts()["Global"]
    aten = torch.ops.aten
    linear = counts.get(aten.mm, 0) + counts.get(aten.addmm, 0)
    found = Counted(linear, counts.get(aten.bmm, 0), counts.get(aten.convolution, 0))
    return found, out.past_key_values


def _model(name: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SHAPE, **CONFIGS[name]})
    config._attn_implementation = config._experts_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def _operators(spec: ModelSpec, prefix: int, new: int) -> dict[str, Operator]:
    step = DecoderStep(spec, resolve_formats(device(), "bf16", "bf16"))
    operators = step.operators(step.measure([SequenceShape(prefix, new, True)]))
    assert len({operator.name for operator in operators}) == len(operators)
    return {operator.name: operator for operator in operators}


def _products(operators: dict[str, Operator]) -> int:
    """FLOPs of products with weights; a convolution is counted apart by torch."""
    found = (o.flops for o in operators.values() if o.role is Role.PRODUCT)
    convolution = operators.get("convolution")
    return int(sum(found) - (convolution.flops if convolution else 0))


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    """Transformers tells which kernels are not installed; torch that some names will change."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_and_products_equal_those_of_transformers(name: str) -> None:
    model, spec = _model(name), _spec(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == spec.num_parameters
    counted, cache = _counted(model, PROMPT)
    assert _linear(_operators(spec, 0, PROMPT), PROMPT) == counted.linear
    if spec.mla is None:
        counted, _ = _counted(model, 1, cache)
        assert _linear(_operators(spec, PROMPT, 1), 1) == counted.linear


def _linear(ours: dict[str, Operator], tokens: int) -> int:
    """Our products as transformers runs them, which differs for DeepSeek-V4 alone.

    Its grouped output projection is a batched product there, and its residual streams become one
    for every token, where we do so for the sampled position only.
    """
    found = _products(ours)
    if "final stream weights" in ours:
        found -= int(ours["output down-projection"].flops)
        found += int(ours["final stream weights"].flops) * (tokens - 1)
    return found


@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe", "Glm4Moe", "DeepseekV2", "DeepseekV3"])
def test_cores_equal_those_of_transformers(name: str) -> None:
    counted, _ = _counted(_model(name), PROMPT)
    ours = _operators(_spec(name), 0, PROMPT)
    core = sum(o.flops for o in ours.values() if o.role is Role.ATTENTION)
    # torch counts the whole square of scores, we the causal half.
    assert core * 2 * PROMPT // (PROMPT + 1) == counted.batched


@pytest.mark.parametrize("name", ["DeepseekV2", "DeepseekV3"])
def test_a_later_chunk_expands_the_whole_context_again(name: str) -> None:
    model, spec = _model(name), _spec(name)
    _, cache = _counted(model, PROMPT)
    counted, _ = _counted(model, CHUNK, cache)
    ours = _operators(spec, PROMPT, CHUNK)
    assert _products(ours) == counted.linear
    pairs = CHUNK * PROMPT + CHUNK * (CHUNK + 1) // 2
    core = ours["attention (prefill)"].flops
    assert core * CHUNK * (PROMPT + CHUNK) // pairs == counted.batched
    assert ours["absorbed projections"].flops == ours["attention (decode)"].flops == 0


def test_windows_of_gpt_oss_in_a_decode_step() -> None:
    model = _model("GptOss")
    _, cache = _counted(model, PROMPT)
    counted, _ = _counted(model, 1, cache)
    ours = _operators(_spec("GptOss"), PROMPT, 1)
    core = sum(o.flops for o in ours.values() if o.role is Role.ATTENTION)
    assert core == counted.batched


def test_the_indexer_of_deepseek_v3_2() -> None:
    """Beside the core of V3, torch counts the indexer's scores and their weighted sum of heads."""
    counted, _ = _counted(_model("DeepseekV32"), PROMPT)
    plain, _ = _counted(_model("DeepseekV3"), PROMPT)
    scores = _operators(_spec("DeepseekV32"), 0, PROMPT)["indexer scores"].flops
    weighted_sum = 2 * 2 * PROMPT * PROMPT * 3
    square = int(scores * 2 * PROMPT // (PROMPT + 1))
    assert counted.batched - plain.batched == square + weighted_sum


@pytest.mark.parametrize("name", ["Qwen3Next", "NemotronH"])
def test_convolutions_and_full_layers_of_hybrids(name: str) -> None:
    model = _model(name)
    counted, cache = _counted(model, PROMPT)
    ours = _operators(_spec(name), 0, PROMPT)
    # torch's convolution runs over the padding of 3 tokens too.
    assert ours["convolution"].flops * (PROMPT + 3) // PROMPT == counted.convolution
    if name == "Qwen3Next":
        # Its state is updated element by element there: only full attention is a product.
        counted, _ = _counted(model, 1, cache)
        assert _operators(_spec(name), PROMPT, 1)["attention"].flops == counted.batched
