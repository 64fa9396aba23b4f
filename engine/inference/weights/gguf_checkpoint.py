"""A GGUF file as a checkpoint: its numbers and tensors under our own names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.config import ModelConfig
from engine.inference.weights.checkpoint import Checkpoint, StoredTensor
from engine.inference.weights.gguf_reader import MetadataValue, read_gguf
from engine.inference.weights.gguf_tokenizer import (
    begin_token,
    chat_template,
    end_tokens,
    gguf_tokenizer,
)

Scalar = int | float | bool | str

_NAMES = {
    "token_embd.weight": "embed",
    "output_norm.weight": "final_norm",
    "output.weight": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "attn_norm",
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_output": "o",
    "ffn_norm": "mlp_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
_LAYER = re.compile(r"blk\.(0|[1-9]\d{0,3})\.([a-z_]+)\.weight")
_FORMAT_SUFFIX = re.compile(r"[.-](I?Q\d\w*|B?F\d\d)$", re.IGNORECASE)

# Every key under ``llama.`` that we act on, and every one that we only accept with a value that
# leaves the computation as it is. Any other key may change the mathematics and is refused.
_READ_KEYS = frozenset(
    {
        "block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "attention.value_length", "attention.layer_norm_rms_epsilon", "rope.freq_base",
        "rope.dimension_count", "vocab_size",
    }
)  # fmt: skip
_NEUTRAL: dict[str, tuple[Scalar, ...]] = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (1.0,),
    "rope.scaling.finetuned": (False,),
    "rope.scale_linear": (1.0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "attention.causal": (True,),
    "use_parallel_residual": (False,),
}


def open_gguf(path: Path) -> Checkpoint:
    """Map the file and describe what is in it; no weight is read yet.

    Raises ``FileFormatError`` or ``UnsupportedModel``, see ``read_gguf`` and ``Checkpoint``.
    """
    file = read_gguf(path)
    metadata = file.metadata
    if not _is_one_of(metadata.get("general.architecture"), ("llama",)):
        raise UnsupportedModel("general.architecture is not llama, the family that runs here")
    if not _is_one_of(metadata.get("split.count", 1), (0, 1)):
        raise UnsupportedModel("split.count: the model is spread over several files")
    _refuse_unknown_keys(metadata)
    config = _config(metadata, file.tensors, _FORMAT_SUFFIX.sub("", path.stem))
    tensors = {
        canonical: _stored(canonical, tensor, config)
        for name, tensor in file.tensors.items()
        for canonical in [_canonical(name)]
    }
    return Checkpoint(
        config=config,
        tensors=tensors,
        file_bytes=file.file_bytes,
        chat_template=chat_template(metadata),
        build_tokenizer=lambda: gguf_tokenizer(metadata),
    )


def _canonical(name: str) -> str:
    layer = _LAYER.fullmatch(name)
    if layer and layer[2] in _LAYER_NAMES:
        return f"layers.{int(layer[1])}.{_LAYER_NAMES[layer[2]]}"
    if name in _NAMES:
        return _NAMES[name]
    raise UnsupportedModel(f"the tensor {name[:80]} is not part of this architecture")


def _stored(canonical: str, tensor: StoredTensor, config: ModelConfig) -> StoredTensor:
    heads = {"q": config.num_attention_heads, "k": config.num_kv_heads}
    interleaved = heads.get(canonical.rpartition(".")[2])
    return StoredTensor(tensor.storage, tensor.shape, tensor.stored, interleaved)


def _refuse_unknown_keys(metadata: Mapping[str, MetadataValue]) -> None:
    for key, value in metadata.items():
        if not key.startswith("llama."):
            continue
        name = key.removeprefix("llama.")
        if name not in _READ_KEYS and not _is_one_of(value, _NEUTRAL.get(name, ())):
            raise UnsupportedModel(f"the metadata key {key[:80]} changes the model; it is not run")


def _is_one_of(value: MetadataValue | None, accepted: tuple[Scalar, ...]) -> bool:
    """Arrays are none of them: comparing one with a number gives no single answer."""
    return isinstance(value, int | float | str) and value in accepted


def _config(
    metadata: Mapping[str, MetadataValue], tensors: Mapping[str, StoredTensor], name: str
) -> ModelConfig:
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise FileFormatError("the tensor token_embd.weight is missing or not a matrix")
    heads = _integer(metadata, "attention.head_count")
    hidden_size = _integer(metadata, "embedding_length")
    head_dim = _integer(metadata, "attention.key_length", hidden_size // max(heads, 1))
    vocab_size = embedding.shape[0]
    if _integer(metadata, "vocab_size", vocab_size) != vocab_size:
        raise FileFormatError("llama.vocab_size differs from the rows of token_embd.weight")
    config = ModelConfig(
        name=name,
        family="llama",
        num_layers=_integer(metadata, "block_count"),
        hidden_size=hidden_size,
        num_attention_heads=heads,
        num_kv_heads=_integer(metadata, "attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate_size=_integer(metadata, "feed_forward_length"),
        vocab_size=vocab_size,
        tied_embeddings="output.weight" not in tensors,
        max_context=_integer(metadata, "context_length"),
        rope_theta=_number(metadata, "rope.freq_base", 10_000.0),
        norm_eps=_number(metadata, "attention.layer_norm_rms_epsilon"),
        eos_token_ids=end_tokens(metadata),
        bos_token_id=begin_token(metadata),
    )
    for key in ("attention.value_length", "rope.dimension_count"):
        if _integer(metadata, key, head_dim) != head_dim:
            raise UnsupportedModel(f"llama.{key} differs from the size of a head")
    return config


def _integer(metadata: Mapping[str, MetadataValue], name: str, default: int | None = None) -> int:
    value = metadata.get(f"llama.{name}", default)
    if type(value) is not int:
        raise FileFormatError(f"llama.{name} is missing or not a whole number")
    return value


def _number(
    metadata: Mapping[str, MetadataValue], name: str, default: float | None = None
) -> float:
    value = metadata.get(f"llama.{name}", default)
    if type(value) is not float:
        raise FileFormatError(f"llama.{name} is missing or not a number")
    return value
