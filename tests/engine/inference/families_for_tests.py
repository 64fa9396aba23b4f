"""One tiny random model of every family, written to disk by transformers itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.inference.weights import open_checkpoint
from engine.inference.weights.checkpoint import Checkpoint
from tests.engine.inference.weights.hf_folders import tokenizer_json

VOCAB = 512
LAYERS = 4
WINDOW = 24
_LLAMA_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 88,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_ROPE = {"rope_type": "default", "rope_theta": 5_000.0}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"rope_parameters": _ROPE, "tie_word_embeddings": False}),
    "smollm2": ("Llama", {"rope_parameters": _ROPE, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {"rope_parameters": _ROPE, "sliding_window": WINDOW}),
    "mistral-global": ("Mistral", {"rope_parameters": _ROPE, "sliding_window": None}),
    "qwen2": ("Qwen2", {"rope_parameters": _ROPE}),
    "qwen2-window": (
        "Qwen2",
        {
            "rope_parameters": _ROPE,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "max_window_layers": 0,
        },
    ),
    "qwen3": ("Qwen3", {"rope_parameters": _ROPE, "head_dim": 32, "tie_word_embeddings": True}),
    "gemma2": (
        "Gemma2",
        {
            "rope_parameters": _ROPE,
            "head_dim": 16,
            "query_pre_attn_scalar": 9,
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 5.0,
            "sliding_window": WINDOW,
        },
    ),
    "gemma3": (
        "Gemma3",
        {
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 9_000.0},
            },
            "head_dim": 16,
            "num_key_value_heads": 1,
            "num_hidden_layers": 7,
            "query_pre_attn_scalar": 20,
            "sliding_window": WINDOW,
        },
    ),
    "gpt2": ("GPT2", {}),
}


@dataclass(frozen=True)
class Written:
    """A model of transformers and the folder that it wrote."""

    model: Any
    folder: Path

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return open_checkpoint(self.folder)

    @torch.no_grad()
    def logits(self, ids: list[int]) -> Tensor:
        return self.model(torch.tensor([ids])).logits[0]


def write_family(name: str, folder: Path, **changes: object) -> Written:
    """Random weights of some size, norms and biases included; the same for the same name."""
    import transformers

    prefix, own = FAMILIES[name]
    if prefix == "GPT2":
        shape = {"vocab_size": VOCAB, "n_embd": 48, "n_layer": LAYERS, "n_head": 4}
        shape |= {"n_positions": 256, "bos_token_id": 1, "eos_token_id": 2}
        config_class, model_class = "GPT2Config", "GPT2LMHeadModel"
    else:
        shape = _LLAMA_SHAPE
        config_class = "Gemma3TextConfig" if prefix == "Gemma3" else f"{prefix}Config"
        model_class = f"{prefix}ForCausalLM"
    torch.manual_seed(len(name))
    config = getattr(transformers, config_class)(**{**shape, **own, **changes})
    model = getattr(transformers, model_class)._from_config(config, attn_implementation="eager")
    _fill(model.eval())
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()), encoding="utf-8")
    return Written(model, folder)


@torch.no_grad()
def _fill(model: torch.nn.Module) -> None:
    """Large enough that attention is not uniform, norms are not all ones and biases count."""
    for name, parameter in model.named_parameters():
        is_norm = "norm" in name or "ln_" in name
        if parameter.ndim == 1:
            parameter.copy_(0.3 * torch.randn_like(parameter))
            # Gemma stores its norms' weights less 1.
            if is_norm and name.endswith("weight") and "Gemma" not in type(model).__name__:
                parameter.add_(1)
        else:
            parameter.copy_(0.15 * torch.randn_like(parameter))
