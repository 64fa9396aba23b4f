"""Turns one table of the catalogue's TOML into a ModelSpec."""

from __future__ import annotations

from engine.catalog.attention import (
    AttentionPattern,
    CompressedAttention,
    GlobalAttention,
    HybridLinearAttention,
    HybridMamba2Attention,
    InterleavedAttention,
    SlidingAttention,
    SparseAttention,
)
from engine.catalog.loading import Table
from engine.catalog.model_spec import ModelSpec
from engine.catalog.parts import MlaSpec, Mlp, ModelExtras, MoeSpec, Norm, QkNorm
from engine.errors import FileFormatError


def read_model(entry: Table, family: str) -> ModelSpec:
    """The model of one entry.

    Raises:
        FileFormatError: a field is missing, mistyped or unknown.
    """
    spec = ModelSpec(
        id=entry.text("id"),
        family=family,
        arch=entry.text("arch"),
        num_layers=entry.integer("num_layers"),
        hidden_size=entry.integer("hidden_size"),
        num_attention_heads=entry.integer("num_attention_heads"),
        num_kv_heads=entry.integer("num_kv_heads"),
        head_dim=entry.integer("head_dim"),
        intermediate_size=entry.integer("intermediate_size"),
        vocab_size=entry.integer("vocab_size"),
        tied_embeddings=entry.flag("tied_embeddings"),
        max_context=entry.integer("max_context"),
        mlp=Mlp(entry.text("mlp")),
        qkv_bias=entry.flag("qkv_bias"),
        attention=_read_attention(entry.table("attention")),
        moe=_read_moe(entry.table("moe")),
        mla=_read_mla(entry.table("mla")),
        extras=_read_extras(entry.table("extras")),
        nominal_params=entry.text("nominal_params"),
        source=entry.text("source"),
        verified=entry.flag("verified"),
        notes=entry.text("notes", ""),
    )
    entry.done()
    return spec


def _read_attention(table: Table | None) -> AttentionPattern:
    if table is None:
        return GlobalAttention()
    kind = table.text("type")
    pattern: AttentionPattern
    if kind == SlidingAttention.kind:
        pattern = SlidingAttention(table.integer("window"))
    elif kind == InterleavedAttention.kind:
        pattern = InterleavedAttention(table.integer("window"), table.integer("global_every"))
    elif kind == SparseAttention.kind:
        pattern = SparseAttention(
            table.integer("index_n_heads"),
            table.integer("index_head_dim"),
            table.integer("index_topk"),
        )
    elif kind == CompressedAttention.kind:
        pattern = _read_compressed(table)
    elif kind == HybridLinearAttention.kind:
        pattern = HybridLinearAttention(
            full_attention_interval=table.integer("full_attention_interval"),
            linear_num_key_heads=table.integer("linear_num_key_heads"),
            linear_num_value_heads=table.integer("linear_num_value_heads"),
            linear_key_head_dim=table.integer("linear_key_head_dim"),
            linear_value_head_dim=table.integer("linear_value_head_dim"),
            conv_kernel=table.integer("conv_kernel"),
        )
    elif kind == HybridMamba2Attention.kind:
        pattern = HybridMamba2Attention(
            layer_pattern=table.text("layer_pattern"),
            mamba_num_heads=table.integer("mamba_num_heads"),
            mamba_head_dim=table.integer("mamba_head_dim"),
            ssm_state_size=table.integer("ssm_state_size"),
            n_groups=table.integer("n_groups"),
            conv_kernel=table.integer("conv_kernel"),
        )
    else:
        raise FileFormatError("unknown type of attention in the catalogue", field="type")
    table.done()
    return pattern


def _read_compressed(table: Table) -> CompressedAttention:
    return CompressedAttention(
        window=table.integer("window"),
        csa_ratio=table.integer("csa_ratio"),
        hca_ratio=table.integer("hca_ratio"),
        compress_ratios=table.integers("compress_ratios"),
        index_n_heads=table.integer("index_n_heads"),
        index_head_dim=table.integer("index_head_dim"),
        index_topk=table.integer("index_topk"),
        q_lora_rank=table.integer("q_lora_rank"),
        o_groups=table.integer("o_groups"),
        o_lora_rank=table.integer("o_lora_rank"),
        qk_rope_head_dim=table.integer("qk_rope_head_dim"),
    )


def _read_moe(table: Table | None) -> MoeSpec | None:
    if table is None:
        return None
    moe = MoeSpec(
        num_experts=table.integer("num_experts"),
        top_k=table.integer("top_k"),
        expert_intermediate=table.integer("expert_intermediate"),
        num_shared_experts=table.integer("num_shared_experts"),
        shared_intermediate=table.integer("shared_intermediate"),
        first_dense_layers=table.integer("first_dense_layers"),
        router=table.text("router"),
        shared_gate=table.flag("shared_gate", False),
    )
    table.done()
    return moe


def _read_mla(table: Table | None) -> MlaSpec | None:
    if table is None:
        return None
    mla = MlaSpec(
        q_lora_rank=table.integer("q_lora_rank"),
        kv_lora_rank=table.integer("kv_lora_rank"),
        qk_rope_head_dim=table.integer("qk_rope_head_dim"),
        qk_nope_head_dim=table.integer("qk_nope_head_dim"),
        v_head_dim=table.integer("v_head_dim"),
    )
    table.done()
    return mla


def _read_extras(table: Table | None) -> ModelExtras:
    if table is None:
        return ModelExtras()
    usual = ModelExtras()
    extras = ModelExtras(
        learned_positions=table.integer("learned_positions", 0),
        all_biases=table.flag("all_biases", False),
        norm=Norm(table.text("norm", usual.norm)),
        norms_per_layer=table.integer("norms_per_layer", usual.norms_per_layer),
        qk_norm=QkNorm(table.text("qk_norm", usual.qk_norm)),
        logit_softcap=table.flag("logit_softcap", False),
        attn_sinks=table.flag("attn_sinks", False),
        attn_output_gate=table.flag("attn_output_gate", False),
        mtp_layers=table.integer("mtp_layers", 0),
        hc_mult=table.integer("hc_mult", 0),
        hc_sinkhorn_iters=table.integer("hc_sinkhorn_iters", 0),
        num_hash_layers=table.integer("num_hash_layers", 0),
        expert_dtype=table.text("expert_dtype", ""),
        released_weights=table.text("released_weights", ""),
    )
    table.done()
    return extras
