"""How many parameters a model has, from its structure alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.catalog.attention import (
    CompressedAttention,
    HybridLinearAttention,
    HybridMamba2Attention,
    SparseAttention,
)
from engine.catalog.parts import QkNorm

if TYPE_CHECKING:
    from engine.catalog.model_spec import ModelSpec


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters by the way a step uses them.

    ``embedding`` and ``positions`` are looked up; ``lm_head`` is 0 where it is the embedding.
    ``idle_experts`` are the experts that one token does not use.
    """

    embedding: int
    positions: int
    layers: int
    final_norm: int
    lm_head: int
    idle_experts: int

    @property
    def total(self) -> int:
        looked_up = self.embedding + self.positions
        return looked_up + self.layers + self.final_norm + self.lm_head

    @property
    def active(self) -> int:
        """What one token's decode step reads whole: the total without look-ups and idle experts.

        A tied embedding counts: the LM head reads it.
        """
        untied = self.embedding if self.lm_head else 0
        return self.total - untied - self.positions - self.idle_experts


def count_parameters(spec: ModelSpec) -> ParameterCount:
    """Count a model's parameters; multi-token-prediction layers are left out."""
    embedding = spec.vocab_size * spec.hidden_size
    norm = spec.hidden_size * spec.extras.norm.vectors
    layers = sum(_layer(spec, layer, norm) for layer in range(spec.num_layers))
    idle = 0
    if spec.moe is not None:
        per_expert = _mlp(spec, spec.moe.expert_intermediate)
        experts = spec.moe.num_experts - spec.moe.top_k
        idle = experts * per_expert * sum(_has_experts(spec, i) for i in range(spec.num_layers))
    return ParameterCount(
        embedding=embedding,
        positions=spec.extras.learned_positions * spec.hidden_size,
        layers=layers,
        final_norm=norm + spec.extras.hyper_connection_head(spec.hidden_size),
        lm_head=0 if spec.tied_embeddings else embedding,
        idle_experts=idle,
    )


def _layer(spec: ModelSpec, layer: int, norm: int) -> int:
    if isinstance(spec.attention, HybridMamba2Attention):
        return norm + _hybrid_mamba_block(spec, spec.attention, layer)
    mixing = spec.extras.hyper_connection_parameters(spec.hidden_size)
    return (
        _attention(spec, layer)
        + _feed_forward(spec, layer)
        + mixing
        + (spec.extras.norms_per_layer * norm)
    )


def _hybrid_mamba_block(spec: ModelSpec, pattern: HybridMamba2Attention, layer: int) -> int:
    """One block a layer: Mamba-2, attention, or experts."""
    letter = pattern.layer_pattern[layer]
    if letter == "M":
        return pattern.layer_parameters(spec.hidden_size)
    return _heads_attention(spec) if letter == "*" else _feed_forward(spec, layer)


def _attention(spec: ModelSpec, layer: int) -> int:
    pattern = spec.attention
    heads = spec.num_attention_heads
    if isinstance(pattern, CompressedAttention):
        return pattern.layer_parameters(layer, spec.hidden_size, heads, spec.head_dim)
    if isinstance(pattern, HybridLinearAttention) and not pattern.is_full(layer):
        return pattern.layer_parameters(spec.hidden_size)
    if spec.mla is None:
        return _heads_attention(spec)
    latent = spec.mla.layer_parameters(spec.hidden_size, heads)
    if isinstance(pattern, SparseAttention):
        latent += pattern.indexer_parameters(spec.hidden_size, spec.mla.q_lora_rank)
    return latent


def _heads_attention(spec: ModelSpec) -> int:
    """Separate query, key and value heads; H·dh need not be the hidden size."""
    extras = spec.extras
    query_size, kv_size = spec.query_size, spec.kv_size
    gate = query_size if extras.attn_output_gate else 0
    count = spec.hidden_size * (query_size + gate + 2 * kv_size) + query_size * spec.hidden_size
    if spec.qkv_bias:
        count += query_size + 2 * kv_size
    if extras.all_biases:
        count += spec.hidden_size
    if extras.qk_norm is QkNorm.PER_HEAD:
        count += 2 * spec.head_dim
    elif extras.qk_norm is QkNorm.PER_LAYER:
        count += query_size + kv_size
    return count + (spec.num_attention_heads if extras.attn_sinks else 0)


def _has_experts(spec: ModelSpec, layer: int) -> bool:
    if spec.moe is None:
        return False
    if isinstance(spec.attention, HybridMamba2Attention):
        return spec.attention.layer_pattern[layer] == "E"
    return layer >= spec.moe.first_dense_layers


def _feed_forward(spec: ModelSpec, layer: int) -> int:
    moe = spec.moe
    if moe is None or not _has_experts(spec, layer):
        return _mlp(spec, spec.intermediate_size)
    router = moe.num_experts * (spec.hidden_size + (1 if spec.extras.all_biases else 0))
    shared = moe.num_shared_experts * _mlp(spec, moe.shared_intermediate)
    gate = spec.hidden_size if moe.shared_gate else 0
    return router + moe.num_experts * _mlp(spec, moe.expert_intermediate) + shared + gate


def _mlp(spec: ModelSpec, intermediate_size: int) -> int:
    count = spec.mlp.matrices * spec.hidden_size * intermediate_size
    if spec.extras.all_biases:
        count += (spec.mlp.matrices - 1) * intermediate_size + spec.hidden_size
    return count
