"""A tiny model to probe, and the same weights in transformers."""

from __future__ import annotations

from functools import cache

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.inference.probes.ablations import parse_ablation
from engine.inference.probes.model import ProbeModel
from engine.inference.probes.session import ProbeSession
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.runs_for_tests import random_ids

IDS = random_ids(23, seed=1)


@cache
def probe_model() -> ProbeModel:
    return ProbeModel(tiny_random_checkpoint())


def session(*ablations: str) -> ProbeSession:
    return ProbeSession(probe_model(), IDS, [parse_ablation(name) for name in ablations])


def llama() -> LlamaForCausalLM:
    """A new transformers model with the weights of ``probe_model``."""
    checkpoint = tiny_random_checkpoint()
    config = checkpoint.config
    model = LlamaForCausalLM(
        LlamaConfig(
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
        )
    ).eval()
    outside = {"embed": "model.embed_tokens", "final_norm": "model.norm", "lm_head": "lm_head"}
    inside = {
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
    state = {}
    for name in checkpoint.names:
        prefix, _, part = name.rpartition(".")
        other = f"model.{prefix}.{inside[part]}" if prefix else outside[name]
        state[f"{other}.weight"] = torch.from_numpy(checkpoint.tensor(name))
    model.load_state_dict(state)
    model.set_attn_implementation("eager")  # the others give no attention weights
    return model


def part(model: LlamaForCausalLM, name: str) -> torch.nn.Module:
    """A module of it, by its dotted name."""
    return model.get_submodule(name)
