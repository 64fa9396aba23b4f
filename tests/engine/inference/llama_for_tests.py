"""Our models as transformers knows them: one mapping of configs and of weights' names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.inference.model.config import ModelConfig

if TYPE_CHECKING:
    from transformers import LlamaConfig

_OUTSIDE = {"embed": "model.embed_tokens", "final_norm": "model.norm", "lm_head": "lm_head"}
_INSIDE = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def llama_config(config: ModelConfig, **more: Any) -> LlamaConfig:
    """A config of the Llama family in transformers' words; ``more``: keys that ours has not."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_context,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        rms_norm_eps=config.norm_eps,
        tie_word_embeddings=config.tied_embeddings,
        **more,
    )


def llama_name(canonical: str) -> str:
    """``layers.3.q`` → ``model.layers.3.self_attn.q_proj.weight``."""
    prefix, _, part = canonical.rpartition(".")
    return f"model.{prefix}.{_INSIDE[part]}.weight" if prefix else f"{_OUTSIDE[part]}.weight"
