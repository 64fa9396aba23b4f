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
    layers = sum(layer_parameters(spec, layer).total for layer in range(spec.num_layers))
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


@dataclass(frozen=True, slots=True)
class LayerParameters:
    """Parameters of one layer by part. ``mixer`` is attention, a delta net or Mamba-2.

    ``experts`` are the matrices of routed experts. ``rest`` are the norms around the parts and
    hyper-connections; norms and biases inside the other parts are counted with them. ``router``
    holds the shared experts' gate too.
    """

    mixer: int = 0
    dense_mlp: int = 0
    router: int = 0
    experts: int = 0
    expert_biases: int = 0
    shared_experts: int = 0
    rest: int = 0

    @property
    def total(self) -> int:
        parts = self.mixer + self.dense_mlp + self.router
        experts = self.experts + self.expert_biases + self.shared_experts
        return parts + experts + self.rest


def layer_parameters(spec: ModelSpec, layer: int) -> LayerParameters:
    """The parameters of one layer, counted from 0."""
    norm = spec.hidden_size * spec.extras.norm.vectors
    pattern = spec.attention
    if isinstance(pattern, HybridMamba2Attention):
        # One block a layer: Mamba-2, attention, an MLP or experts.
        letter = pattern.layer_pattern[layer]
        if letter == "M":
            return LayerParameters(mixer=pattern.layer_parameters(spec.hidden_size), rest=norm)
        if letter == "*":
            return LayerParameters(mixer=_heads_attention(spec), rest=norm)
        return _feed_forward(spec, layer, mixer=0, rest=norm)
    mixing = spec.extras.hyper_connection_parameters(spec.hidden_size)
    rest = mixing + spec.extras.norms_per_layer * norm
    return _feed_forward(spec, layer, mixer=_attention(spec, layer), rest=rest)


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


def _feed_forward(spec: ModelSpec, layer: int, *, mixer: int, rest: int) -> LayerParameters:
    moe = spec.moe
    if moe is None or not _has_experts(spec, layer):
        return LayerParameters(mixer=mixer, dense_mlp=_mlp(spec, spec.intermediate_size), rest=rest)
    router = moe.num_experts * (spec.hidden_size + (1 if spec.extras.all_biases else 0))
    gate = spec.hidden_size if moe.shared_gate else 0
    return LayerParameters(
        mixer=mixer,
        router=router + gate,
        experts=moe.num_experts * _mlp_matrices(spec, moe.expert_intermediate),
        expert_biases=moe.num_experts * _mlp_biases(spec, moe.expert_intermediate),
        shared_experts=moe.num_shared_experts * _mlp(spec, moe.shared_intermediate),
        rest=rest,
    )


def _mlp(spec: ModelSpec, intermediate_size: int) -> int:
    return _mlp_matrices(spec, intermediate_size) + _mlp_biases(spec, intermediate_size)


def _mlp_matrices(spec: ModelSpec, intermediate_size: int) -> int:
    return spec.mlp.matrices * spec.hidden_size * intermediate_size


def _mlp_biases(spec: ModelSpec, intermediate_size: int) -> int:
    if not spec.extras.all_biases:
        return 0
    return (spec.mlp.matrices - 1) * intermediate_size + spec.hidden_size
