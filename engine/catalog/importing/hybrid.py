"""Readers of hybrids: gated delta nets (Qwen3-Next, Qwen3.5) and Mamba-2 (Nemotron-H)."""

from __future__ import annotations

from engine.catalog.attention import HybridLinearAttention, HybridMamba2Attention
from engine.catalog.importing.common import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_WIDTH,
    Frame,
    activation,
    check_layer_types,
    model_spec,
    read_frame,
)
from engine.catalog.importing.document import ConfigDocument
from engine.catalog.importing.experts import ROUTING, leading_dense, read_experts
from engine.catalog.model_spec import ModelSpec
from engine.catalog.parts import Mlp, ModelExtras, MoeSpec, QkNorm

_MAX_KERNEL = 256


def read_qwen3_next(document: ConfigDocument) -> ModelSpec:
    """Qwen3-Next: delta nets with experts, one of them shared behind a gate."""
    return _delta_net_model(document, "Qwen3-Next", kv_heads=2, experts=True)


def read_qwen3_5(document: ConfigDocument) -> ModelSpec:
    """Qwen3.5, its dense text tower."""
    return _delta_net_model(document, "Qwen3.5", kv_heads=4, experts=False)


def read_qwen3_5_moe(document: ConfigDocument) -> ModelSpec:
    """Qwen3.5 with experts, its text tower."""
    return _delta_net_model(document, "Qwen3.5", kv_heads=2, experts=True)


def _delta_net_model(
    document: ConfigDocument, family: str, *, kv_heads: int, experts: bool
) -> ModelSpec:
    frame = read_frame(document, tied=False, kv_heads=kv_heads, head_dim=256)
    activation(document, "silu")
    document.expect("attention_bias", False)
    document.expect("attn_output_gate", True)
    document.ignore((*ROUTING, "mamba_ssm_dtype", "mtp_use_dedicated_embeddings"))
    moe = _gated_shared_experts(document, frame) if experts else None
    # Where every layer has experts, a dense MLP's size is only left over.
    dense = moe is None or moe.first_dense_layers > 0
    width = document.optional_size("intermediate_size", MAX_WIDTH)
    if dense and width is None:
        document.wrong("intermediate_size", f"is missing; give a number up to {MAX_WIDTH:,}")
    if not experts:
        document.expect("mlp_only_layers", [])
    return model_spec(
        frame,
        family,
        intermediate_size=width or 0,
        attention=_read_delta_net(document, frame),
        moe=moe,
        extras=ModelExtras(
            attn_output_gate=True,
            qk_norm=QkNorm.PER_HEAD,
            mtp_layers=document.size("mtp_num_hidden_layers", MAX_LAYERS, low=0, default=0),
        ),
    )


def _gated_shared_experts(document: ConfigDocument, frame: Frame) -> MoeSpec:
    return read_experts(
        document,
        "num_experts",
        document.size("moe_intermediate_size", MAX_WIDTH),
        router="softmax",
        first_dense=leading_dense(document, frame),
        shared=1,
        shared_width=document.size("shared_expert_intermediate_size", MAX_WIDTH),
        shared_gate=True,
    )


def _read_delta_net(document: ConfigDocument, frame: Frame) -> HybridLinearAttention:
    every = document.size("full_attention_interval", MAX_LAYERS, default=4)
    pattern = HybridLinearAttention(
        full_attention_interval=every,
        linear_num_key_heads=document.size("linear_num_key_heads", MAX_HEADS),
        linear_num_value_heads=document.size("linear_num_value_heads", MAX_HEADS),
        linear_key_head_dim=document.size("linear_key_head_dim", MAX_WIDTH),
        linear_value_head_dim=document.size("linear_value_head_dim", MAX_WIDTH),
        conv_kernel=document.size("linear_conv_kernel_dim", _MAX_KERNEL),
    )
    kinds = ("linear_attention", "full_attention")
    check_layer_types(document, [kinds[pattern.is_full(i)] for i in range(frame.num_layers)])
    return pattern


_LETTERS = {
    "linear_attention": "M", "mamba": "M", "full_attention": "*", "attention": "*",
    "moe": "E", "mlp": "-",
}  # fmt: skip


def read_nemotron_h(document: ConfigDocument) -> ModelSpec:
    """Nemotron-H and Nemotron 3 Nano: one block a layer, told by its letter."""
    letters = _letters(document)
    document.default("num_hidden_layers", len(letters))
    if "attention_head_dim" in document:
        document.default("head_dim", document.size("attention_head_dim", MAX_WIDTH))
    frame = read_frame(document, tied=False, kv_heads=8, head_dim=128)
    if len(letters) != frame.num_layers:
        document.wrong("num_hidden_layers", "does not go with the pattern of layers")
    _expect_usual_mamba(document)
    width = document.size("intermediate_size", MAX_WIDTH)
    return model_spec(
        frame,
        "Nemotron-H",
        intermediate_size=width,
        mlp=Mlp.RELU2_2,
        attention=HybridMamba2Attention(
            layer_pattern=letters,
            mamba_num_heads=document.size("mamba_num_heads", MAX_HEADS),
            mamba_head_dim=document.size("mamba_head_dim", MAX_WIDTH),
            ssm_state_size=document.size("ssm_state_size", MAX_WIDTH),
            n_groups=document.size("n_groups", MAX_HEADS),
            conv_kernel=document.size("conv_kernel", _MAX_KERNEL),
        ),
        moe=_nemotron_experts(document) if "E" in letters else None,
        extras=ModelExtras(
            mtp_layers=document.size("num_nextn_predict_layers", MAX_LAYERS, low=0, default=0),
        ),
    )


def _letters(document: ConfigDocument) -> str:
    pattern = document.plain_text("hybrid_override_pattern")
    names = document.texts("layers_block_type") or document.texts("layer_types") or ()
    if any(name not in _LETTERS for name in names):
        document.refuse("layers_block_type", f"only {', '.join(_LETTERS)} are understood")
    listed = "".join(_LETTERS[name] for name in names)
    if pattern and listed and pattern != listed:
        document.wrong("hybrid_override_pattern", "does not go with layers_block_type")
    letters = pattern or listed
    if not letters:
        document.wrong("hybrid_override_pattern", "is missing; give a letter for each layer")
    if set(letters) - set("M*E-"):
        document.refuse("hybrid_override_pattern", "only the letters M, *, E and - are understood")
    return letters


def _expect_usual_mamba(document: ConfigDocument) -> None:
    """Only the parts that the catalogue's Mamba-2 layers have."""
    document.expect("mlp_hidden_act", "relu2")
    document.expect("mamba_hidden_act", "silu")
    document.expect("use_conv_bias", True)
    for key in ("attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias"):
        document.expect(key, False)
    for key in ("sliding_window", "moe_latent_size"):
        if key in document:
            document.refuse(key, "asks for a part that is not understood")
    document.ignore(
        (
            *ROUTING, "expand", "chunk_size", "time_step_floor", "time_step_max", "time_step_min",
            "time_step_limit", "time_step_rank", "num_logits_to_keep", "rescale_prenorm_residual",
            "residual_in_fp32", "use_mamba_kernels", "mamba_ssm_cache_dtype",
            "moe_shared_expert_overlap", "mtp_layers_block_type", "mtp_hybrid_override_pattern",
        )
    )  # fmt: skip


def _nemotron_experts(document: ConfigDocument) -> MoeSpec:
    shared = document.size("n_shared_experts", 1, low=0, default=1)
    key = "moe_shared_expert_intermediate_size"
    return read_experts(
        document,
        "n_routed_experts",
        document.size("moe_intermediate_size", MAX_WIDTH),
        router="sigmoid",
        shared=shared,
        shared_width=document.size(key, MAX_WIDTH) if shared else 0,
    )
