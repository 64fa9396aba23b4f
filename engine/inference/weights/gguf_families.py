"""The architectures of GGUF files that are read: their keys, their tensors' names, their fields.

Keys and names are those of the GGUF specification and of the ``gguf`` package's tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.catalog.parts import Mlp, Norm
from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.config import ModelConfig
from engine.inference.weights.checkpoint import StoredTensor

_NAMES = {
    "token_embd.weight": "embed",
    "output_norm.weight": "final_norm",
    "output_norm.bias": "final_norm_bias",
    "output.weight": "lm_head",
    "position_embd.weight": "positions",
}
_PARTS = {
    "attn_norm": "attn_norm",
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_q_norm": "q_norm",
    "attn_k_norm": "k_norm",
    "attn_output": "o",
    "ffn_norm": "mlp_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
_SIDE_BY_SIDE = "attn_qkv"
_LAYER = re.compile(r"blk\.(0|[1-9]\d{0,3})\.([a-z_]+)\.(weight|bias)")


@dataclass(frozen=True, slots=True)
class Architecture:
    """How the files of one ``general.architecture`` are read.

    ``fields``: those of ``ModelConfig`` that make it what it is. ``norm_eps_key``: where its norms'
    epsilon stands. ``interleaved``: the rows of q and k are stored for rotary embeddings over
    neighbouring pairs, as llama.cpp's converter writes them for Llama alone.
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    norm_eps_key: str = "attention.layer_norm_rms_epsilon"
    interleaved: bool = False


ARCHITECTURES: dict[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        Architecture("llama", interleaved=True),
        Architecture("qwen2", {"qkv_bias": True}),
        Architecture("qwen3", {"qk_norm": True}),
        Architecture(
            "gpt2",
            {
                "rope_theta": None,
                "norm": Norm.LAYER,
                "mlp": Mlp.GELU2,
                "qkv_bias": True,
                "all_biases": True,
            },
            norm_eps_key="attention.layer_norm_epsilon",
        ),
    )
}
"""By the name in ``general.architecture``."""


def canonical_tensors(
    stored: Mapping[str, StoredTensor], architecture: Architecture, config: ModelConfig
) -> dict[str, StoredTensor]:
    """Our names for the file's tensors.

    Raises ``UnsupportedModel`` for a name that is not known, ``FileFormatError`` where two tensors
    would have one name, or q, k and v side by side do not have their width.
    """
    interleaved = {"q": config.num_attention_heads, "k": config.num_kv_heads}
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in stored.items():
        for canonical, part in _parts(name, tensor, config):
            if canonical in tensors:
                raise FileFormatError(f"the tensor {canonical} is there twice")
            heads = (
                interleaved.get(canonical.rpartition(".")[2]) if architecture.interleaved else None
            )
            tensors[canonical] = StoredTensor(part.storage, part.shape, part.stored, heads)
    return tensors


def _parts(
    name: str, tensor: StoredTensor, config: ModelConfig
) -> Iterator[tuple[str, StoredTensor]]:
    layer = _LAYER.fullmatch(name)
    if name in _NAMES:
        yield _NAMES[name], tensor
        return
    if not layer or (layer[2] not in _PARTS and layer[2] != _SIDE_BY_SIDE):
        raise UnsupportedModel(f"the tensor {name[:80]} is not part of this architecture")
    prefix, suffix = f"layers.{layer[1]}.", "_bias" if layer[3] == "bias" else ""
    if layer[2] in _PARTS:
        yield prefix + _PARTS[layer[2]] + suffix, tensor
        return
    widths = {"q": config.query_size, "k": config.kv_size, "v": config.kv_size}
    if tensor.shape[0] != sum(widths.values()):
        raise FileFormatError(f"the tensor {name[:80]} does not have the width of q, k and v")
    first = 0
    for part, width in widths.items():
        yield prefix + part + suffix, _rows(tensor, first, first + width)
        first += width


def _rows(tensor: StoredTensor, first: int, last: int) -> StoredTensor:
    """Some rows of a matrix, or numbers of a vector: a view of the file."""
    columns = tensor.shape[1:]
    row_bytes = tensor.storage.row_bytes(columns[0]) if columns else tensor.storage.block_bytes
    part = tensor.stored[first * row_bytes : last * row_bytes]
    return StoredTensor(tensor.storage, (last - first, *columns), part)
