"""Small Hugging Face folders for tests, weights written with the ``safetensors`` package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from engine.inference.weights.tiny import TINY_CHAT_TEMPLATE, tiny_random_checkpoint

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, VOCAB = 32, 4, 2, 8, 48, 2, 512

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": FFN,
    "is_llama_config": True,
    "max_position_embeddings": 256,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.42.3",
    "use_cache": True,
    "vocab_size": VOCAB,
}


def tokenizer_json() -> dict[str, Any]:
    """The tiny model's tokenizer as the library writes it."""
    return json.loads(tiny_random_checkpoint().tokenizer()._backend.to_str())


def tensors(seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights under Hugging Face names, without a head of their own."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    weights = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN)}
    for i in range(LAYERS):
        weights |= {
            f"model.layers.{i}.input_layernorm.weight": matrix(HIDDEN),
            f"model.layers.{i}.self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            f"model.layers.{i}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"model.layers.{i}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"model.layers.{i}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"model.layers.{i}.post_attention_layernorm.weight": matrix(HIDDEN),
            f"model.layers.{i}.mlp.gate_proj.weight": matrix(FFN, HIDDEN),
            f"model.layers.{i}.mlp.up_proj.weight": matrix(FFN, HIDDEN),
            f"model.layers.{i}.mlp.down_proj.weight": matrix(HIDDEN, FFN),
        }
    weights["model.norm.weight"] = matrix(HIDDEN)
    return weights


def write_folder(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
    **files: Mapping[str, Any],
) -> Path:
    """``files``: further JSON files by stem, such as ``generation_config``."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = {
        "config": CONFIG if config is None else config,
        "tokenizer": tokenizer_json(),
        "tokenizer_config": {
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "chat_template": TINY_CHAT_TEMPLATE,
        },
        **files,
    }
    for stem, document in documents.items():
        (folder / f"{stem}.json").write_text(json.dumps(document), encoding="utf-8")
    save_file(dict(tensors() if weights is None else weights), folder / "model.safetensors")
    return folder


def write_shards(folder: Path, weights: Mapping[str, np.ndarray], shards: int) -> dict[str, str]:
    """Replace the single file by shards and their index; gives the weight map."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {key: weights[key] for key in list(weights)[number::shards]}
        save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    write_index(folder, weight_map)
    return weight_map


def write_index(folder: Path, weight_map: Mapping[str, Any]) -> None:
    index = {"metadata": {}, "weight_map": dict(weight_map)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
