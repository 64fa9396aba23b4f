"""Small GGUF files for tests, written with the ``gguf`` package: an independent hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from engine.inference.weights.tiny import TINY_CHAT_TEMPLATE, tiny_random_checkpoint

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS, VOCAB = 64, 4, 2, 16, 96, 2, 512
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

_TYPES = {
    bool: gguf.GGUFValueType.BOOL,
    int: gguf.GGUFValueType.UINT32,
    float: gguf.GGUFValueType.FLOAT32,
    str: gguf.GGUFValueType.STRING,
    list: gguf.GGUFValueType.ARRAY,
}


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges ("a b") of the tiny tokenizer."""
    backend = tiny_random_checkpoint().tokenizer()._backend
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [" ".join(merge) for merge in model["merges"]]


def metadata() -> dict[str, Any]:
    """All keys of a small Llama; tests take away, add or change some."""
    tokens, merges = vocabulary()
    return {
        "llama.block_count": LAYERS,
        "llama.context_length": 256,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": HEAD_DIM,
        "llama.vocab_size": VOCAB,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in CONTROL_TOKENS else 1 for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TINY_CHAT_TEMPLATE,
    }


def tensors(seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights under GGUF names; embeddings are tied."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    weights = {"token_embd.weight": matrix(VOCAB, HIDDEN)}
    for i in range(LAYERS):
        weights |= {
            f"blk.{i}.attn_norm.weight": matrix(HIDDEN),
            f"blk.{i}.attn_q.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_k.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_v.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_output.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"blk.{i}.ffn_norm.weight": matrix(HIDDEN),
            f"blk.{i}.ffn_gate.weight": matrix(FFN, HIDDEN),
            f"blk.{i}.ffn_up.weight": matrix(FFN, HIDDEN),
            f"blk.{i}.ffn_down.weight": matrix(HIDDEN, FFN),
        }
    weights["output_norm.weight"] = matrix(HIDDEN)
    return weights


def write_gguf(
    path: Path,
    keys: Mapping[str, Any] | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    quantised: Mapping[str, gguf.GGMLQuantizationType] | None = None,
    architecture: str = "llama",
) -> Path:
    """Write a file with the package's own writer. ``quantised``: tensor name → storage type."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (metadata() if keys is None else keys).items():
        if isinstance(value, tuple):  # (value, type) where the usual type is not the one wanted
            writer.add_key_value(key, *value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, _TYPES[type(value)])
    for name, weight in (tensors() if weights is None else weights).items():
        kind = (quantised or {}).get(name)
        if kind is None:
            writer.add_tensor(name, weight)
        else:
            writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Header:
    """A header built byte by byte, for what no honest writer would write."""

    def __init__(self, *, version: int = 3, tensors: int = 0, keys: int = 0) -> None:
        self.content = b"GGUF" + struct.pack("<IQQ", version, tensors, keys)

    def raw(self, format_: str, *values: object) -> Header:
        self.content += struct.pack("<" + format_, *values)
        return self

    def string(self, text: str | bytes) -> Header:
        data = text.encode() if isinstance(text, str) else text
        self.content += struct.pack("<Q", len(data)) + data
        return self

    def alignment(self, value: int) -> Header:
        return self.string("general.alignment").raw("II", 4, value)

    def tensor(self, name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> Header:
        return self.string(name).raw(f"I{len(shape)}QIQ", len(shape), *shape, kind, offset)

    def write(self, path: Path, *, data: int = 0) -> Path:
        path.write_bytes(self.content + bytes(-len(self.content) % 32) + bytes(data))
        return path
