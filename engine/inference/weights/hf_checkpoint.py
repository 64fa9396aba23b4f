"""A folder in Hugging Face layout as a checkpoint: config, safetensors shards, tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from engine.errors import FileFormatError
from engine.inference.weights.checkpoint import Checkpoint, StoredTensor
from engine.inference.weights.hf_config import hf_config
from engine.inference.weights.hf_names import canonical_tensors, without_derived
from engine.inference.weights.hf_tokenizer import hf_chat_template, hf_tokenizer
from engine.inference.weights.json_file import (
    MAX_CONFIG_BYTES,
    MAX_INDEX_BYTES,
    read_json_object,
)
from engine.inference.weights.safetensors_reader import read_safetensors

MAX_SHARDS = 1_024
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def open_hf_folder(folder: Path) -> Checkpoint:
    """Read config and headers; no weight is read yet.

    Raises ``FileFormatError`` and ``UnsupportedModel`` as ``open_checkpoint`` says.
    """
    document = read_json_object(folder / "config.json", MAX_CONFIG_BYTES)
    generation_path = folder / "generation_config.json"
    generation = (
        read_json_object(generation_path, MAX_CONFIG_BYTES) if generation_path.is_file() else {}
    )
    config = hf_config(document, generation, folder.resolve().name)
    stored, file_bytes = _read_shards(folder)
    tensors = _tie(canonical_tensors(stored, config), tied=config.tied_embeddings)
    tokenizer = hf_tokenizer(folder)
    return Checkpoint(
        config=replace(config, bos_token_id=tokenizer.bos_token_id),
        tensors=tensors,
        file_bytes=file_bytes,
        chat_template=hf_chat_template(folder),
        build_tokenizer=lambda: tokenizer,
    )


def _read_shards(folder: Path) -> tuple[dict[str, StoredTensor], int]:
    """All tensors of the one weights file, or of the files that the index names."""
    if not (folder / _INDEX).is_file():
        if not (folder / _SINGLE).is_file():
            raise FileFormatError(f"the folder has neither {_SINGLE} nor {_INDEX}")
        single = read_safetensors(folder / _SINGLE)
        return without_derived(single.tensors), single.file_bytes
    weight_map = read_json_object(folder / _INDEX, MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FileFormatError(f"{_INDEX} has no weight_map")
    shard_names = sorted({_plain_file_name(name) for name in weight_map.values()})
    if len(shard_names) > MAX_SHARDS:
        raise FileFormatError(f"{_INDEX} names more than {MAX_SHARDS} files")
    tensors: dict[str, StoredTensor] = {}
    file_bytes = 0
    for shard_name in shard_names:
        if not (folder / shard_name).is_file():
            raise FileFormatError(f"a file that {_INDEX} names is missing")
        shard = read_safetensors(folder / shard_name)
        file_bytes += shard.file_bytes
        expected = {name for name, file in weight_map.items() if file == shard_name}
        if shard.tensors.keys() != expected:
            raise FileFormatError(f"a weights file holds other tensors than {_INDEX} says")
        tensors |= shard.tensors
    return without_derived(tensors), file_bytes


def _plain_file_name(name: object) -> str:
    """A shard lies in the folder itself: no separators, no parents, only safetensors."""
    if (
        not isinstance(name, str)
        or PurePosixPath(name).name != name
        or "\\" in name
        or not name.endswith(".safetensors")
    ):
        raise FileFormatError(f"{_INDEX} names a file that is not a plain .safetensors name")
    return name


def _tie(tensors: dict[str, StoredTensor], *, tied: bool) -> dict[str, StoredTensor]:
    """With tied embeddings, either of the two names stands for both.

    Raises ``FileFormatError`` where both are there and differ: one of them would be ignored.
    """
    if not tied or "lm_head" not in tensors:
        return tensors
    head = tensors.pop("lm_head")
    embed = tensors.setdefault("embed", head)
    if embed.shape != head.shape or not np.array_equal(embed.stored, head.stored):
        raise FileFormatError(
            "tie_word_embeddings is set, but lm_head.weight differs from embed_tokens.weight"
        )
    return tensors
