"""A GGUF file as a checkpoint: its numbers and tensors under our own names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.config import ModelConfig
from engine.inference.weights.checkpoint import Checkpoint, StoredTensor
from engine.inference.weights.gguf_families import (
    ARCHITECTURES,
    Architecture,
    canonical_tensors,
)
from engine.inference.weights.gguf_reader import MetadataValue, read_gguf
from engine.inference.weights.gguf_tokenizer import (
    begin_token,
    chat_template,
    end_tokens,
    gguf_tokenizer,
)

Scalar = int | float | bool | str

_FORMAT_SUFFIX = re.compile(r"[.-](I?Q\d\w*|B?F\d\d)$", re.IGNORECASE)

# Every key under the architecture's name that we act on, and every one that we only accept with a
# value that leaves the computation as it is. Any other may change the mathematics and is refused.
_READ_KEYS = frozenset(
    {
        "block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "attention.value_length", "rope.freq_base", "rope.dimension_count", "vocab_size",
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
    name = metadata.get("general.architecture")
    architecture = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if architecture is None:
        raise UnsupportedModel(
            f"general.architecture is none of those that run here: {', '.join(ARCHITECTURES)}"
        )
    if not _is_one_of(metadata.get("split.count", 1), (0, 1)):
        raise UnsupportedModel("split.count: the model is spread over several files")
    keys = _Keys(architecture, metadata)
    keys.refuse_unknown()
    config = _config(keys, file.tensors, _FORMAT_SUFFIX.sub("", path.stem))
    return Checkpoint(
        config=config,
        tensors=canonical_tensors(file.tensors, architecture, config),
        file_bytes=file.file_bytes,
        chat_template=chat_template(metadata),
        build_tokenizer=lambda: gguf_tokenizer(metadata),
    )


def _is_one_of(value: MetadataValue | None, accepted: tuple[Scalar, ...]) -> bool:
    """Arrays are none of them: comparing one with a number gives no single answer."""
    return isinstance(value, int | float | str) and value in accepted


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys under the architecture's name."""

    architecture: Architecture
    metadata: Mapping[str, MetadataValue]

    def full(self, name: str) -> str:
        return f"{self.architecture.name}.{name}"

    def refuse_unknown(self) -> None:
        read = _READ_KEYS | {self.architecture.norm_eps_key}
        prefix = self.full("")
        for key, value in self.metadata.items():
            name = key.removeprefix(prefix)
            if name == key or name in read:
                continue
            if not _is_one_of(value, _NEUTRAL.get(name, ())):
                raise UnsupportedModel(
                    f"the metadata key {key[:80]} changes the model; it is not run"
                )

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.metadata.get(self.full(name), default)
        if type(value) is not int:
            raise FileFormatError(f"{self.full(name)} is missing or not a whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.metadata.get(self.full(name), default)
        if type(value) is not float:
            raise FileFormatError(f"{self.full(name)} is missing or not a number")
        return value


def _config(keys: _Keys, tensors: Mapping[str, StoredTensor], name: str) -> ModelConfig:
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise FileFormatError("the tensor token_embd.weight is missing or not a matrix")
    heads = keys.integer("attention.head_count")
    hidden_size = keys.integer("embedding_length")
    head_dim = keys.integer("attention.key_length", hidden_size // max(heads, 1))
    vocab_size = embedding.shape[0]
    if keys.integer("vocab_size", vocab_size) != vocab_size:
        raise FileFormatError(
            f"{keys.full('vocab_size')} differs from the rows of token_embd.weight"
        )
    fields: dict[str, Any] = {
        "num_layers": keys.integer("block_count"),
        "hidden_size": hidden_size,
        "num_attention_heads": heads,
        "num_kv_heads": keys.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "intermediate_size": keys.integer("feed_forward_length"),
        "vocab_size": vocab_size,
        "tied_embeddings": "output.weight" not in tensors,
        "max_context": keys.integer("context_length"),
        "rope_theta": keys.number("rope.freq_base", 10_000.0),
        "norm_eps": keys.number(keys.architecture.norm_eps_key),
        "eos_token_ids": end_tokens(keys.metadata),
        "bos_token_id": begin_token(keys.metadata),
    }
    fields |= keys.architecture.fields
    config = ModelConfig(name=name, family=keys.architecture.name, **fields)
    for key in ("attention.value_length", "rope.dimension_count"):
        if keys.integer(key, head_dim) != head_dim:
            raise UnsupportedModel(f"{keys.full(key)} differs from the size of a head")
    return config
