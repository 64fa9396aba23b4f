"""A model's numbers in the catalogue's words, so that predictions are made for what runs."""

from __future__ import annotations

from typing import Any

from engine.catalog.attention import GlobalAttention, InterleavedAttention
from engine.catalog.parts import QkNorm
from engine.inference.model.config import ModelConfig

_NORMS_PER_LAYER, _NORMS_WITH_POST_NORMS = 2, 4


def architecture_of(config: ModelConfig) -> dict[str, Any]:
    """The arguments of ``ModelSpec.dense``: numbers, texts and flags only, for they are sent."""
    attention = config.attention
    return {
        "id": config.name,
        "family": config.family,
        "num_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "num_kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "tied_embeddings": config.tied_embeddings,
        "max_context": config.max_context,
        "mlp": config.mlp.value,
        "norm": config.norm.value,
        "norms_per_layer": _NORMS_WITH_POST_NORMS if config.post_norms else _NORMS_PER_LAYER,
        "qk_norm": (QkNorm.PER_HEAD if config.qk_norm else QkNorm.NONE).value,
        "qkv_bias": config.qkv_bias,
        "all_biases": config.all_biases,
        "learned_positions": config.max_context if config.rope_theta is None else 0,
        "logit_softcap": config.logit_softcap is not None,
        "window": None if isinstance(attention, GlobalAttention) else attention.window,
        "global_every": (
            attention.global_every if isinstance(attention, InterleavedAttention) else None
        ),
    }
