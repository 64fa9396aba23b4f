"""The tensors of a Hugging Face folder under our own names, every one known or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from engine.catalog.parts import Norm
from engine.errors import FileFormatError, UnsupportedModel
from engine.inference.model.config import ModelConfig
from engine.inference.weights.checkpoint import StoredTensor

_NAMES = {
    "model.embed_tokens.weight": "embed",
    "model.norm.weight": "final_norm",
    "lm_head.weight": "lm_head",
}
_LAYER = re.compile(r"model\.layers\.(0|[1-9]\d{0,3})\.([a-z_.]+)")
_PARTS = {
    "input_layernorm.weight": "attn_norm",
    "self_attn.o_proj.weight": "o",
    "mlp.gate_proj.weight": "gate",
    "mlp.up_proj.weight": "up",
    "mlp.down_proj.weight": "down",
    "self_attn.q_norm.weight": "q_norm",
    "self_attn.k_norm.weight": "k_norm",
    **{f"self_attn.{part}_proj.weight": part for part in "qkv"},
    **{f"self_attn.{part}_proj.bias": f"{part}_bias" for part in "qkv"},
}
# The same name stands for the second norm of a layer that has two, and of one that has four.
_TWO_NORMS = {"post_attention_layernorm.weight": "mlp_norm"}
_FOUR_NORMS = {
    "post_attention_layernorm.weight": "attn_post_norm",
    "pre_feedforward_layernorm.weight": "mlp_norm",
    "post_feedforward_layernorm.weight": "mlp_post_norm",
}

_GPT2_NAMES = {
    "wte.weight": "embed",
    "wpe.weight": "positions",
    "ln_f.weight": "final_norm",
    "ln_f.bias": "final_norm_bias",
    "lm_head.weight": "lm_head",
}
_GPT2_LAYER = re.compile(r"h\.(0|[1-9]\d{0,3})\.([a-z0-9_]+(?:\.c_[a-z]+)?)\.(weight|bias)")
_GPT2_NORMS = {"ln_1": "attn_norm", "ln_2": "mlp_norm"}
_GPT2_MATRICES = {
    "attn.c_attn": ("q", "k", "v"),
    "attn.c_proj": ("o",),
    "mlp.c_fc": ("up",),
    "mlp.c_proj": ("down",),
}

# Old checkpoints store what follows from the config: rotary frequencies, and causal masks.
_DERIVED = re.compile(
    r"model\.layers\.\d{1,4}\.self_attn\.rotary_emb\.inv_freq"
    r"|(transformer\.)?h\.\d{1,4}\.attn\.(bias|masked_bias)"
)


def without_derived(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """All but the tensors that follow from the config."""
    return {name: tensor for name, tensor in tensors.items() if not _DERIVED.fullmatch(name)}


def canonical_tensors(
    stored: Mapping[str, StoredTensor], config: ModelConfig
) -> dict[str, StoredTensor]:
    """Our names for the file's tensors, in our orientation.

    Raises ``UnsupportedModel`` for a name that is not known, ``FileFormatError`` where two tensors
    would have one name, or a tensor has no shape to be cut up in.
    """
    of_family = _gpt2 if config.norm is Norm.LAYER else _llama_like
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in stored.items():
        for canonical, part in of_family(name, tensor, config):
            if canonical in tensors:
                raise FileFormatError(f"the tensor {canonical} is there twice")
            tensors[canonical] = part
    return tensors


def _llama_like(
    name: str, tensor: StoredTensor, config: ModelConfig
) -> Iterator[tuple[str, StoredTensor]]:
    layer = _LAYER.fullmatch(name)
    if layer:
        parts = _PARTS | (_FOUR_NORMS if config.post_norms else _TWO_NORMS)
        canonical = parts.get(layer[2])
        canonical = canonical and f"layers.{layer[1]}.{canonical}"
    else:
        canonical = _NAMES.get(name)
    if canonical is None:
        raise _unknown(name)
    yield canonical, tensor


def _gpt2(
    name: str, tensor: StoredTensor, config: ModelConfig
) -> Iterator[tuple[str, StoredTensor]]:
    """Its matrices are stored ``[in, out]``, and q, k and v side by side in one."""
    bare = name.removeprefix("transformer.")
    layer = _GPT2_LAYER.fullmatch(bare)
    if bare in _GPT2_NAMES:
        yield _GPT2_NAMES[bare], tensor
    elif layer and layer[2] in _GPT2_NORMS:
        suffix = "_bias" if layer[3] == "bias" else ""
        yield f"layers.{layer[1]}.{_GPT2_NORMS[layer[2]]}{suffix}", tensor
    elif layer and layer[2] in _GPT2_MATRICES:
        names = _GPT2_MATRICES[layer[2]]
        suffix = "_bias" if layer[3] == "bias" else ""
        columns, left = divmod(tensor.shape[-1], len(names))
        if left or len(tensor.shape) != (1 if suffix else 2):
            raise FileFormatError(f"the tensor {name[:80]} has a shape that does not fit its name")
        for index, part in enumerate(names):
            piece = _columns_as_rows(tensor, index * columns, (index + 1) * columns)
            yield f"layers.{layer[1]}.{part}{suffix}", piece
    else:
        raise _unknown(name)


def _columns_as_rows(tensor: StoredTensor, first: int, last: int) -> StoredTensor:
    """Some columns of a matrix as the rows of another, or a part of a vector: views of the file."""
    item = tensor.storage.block_bytes
    if len(tensor.shape) == 1:
        part = tensor.stored[first * item : last * item]
        return StoredTensor(tensor.storage, (last - first,), part)
    rows = tensor.shape[0]
    columns = tensor.stored.reshape(rows, -1, item)[:, first:last]
    return StoredTensor(tensor.storage, (last - first, rows), columns.swapaxes(0, 1))


def _unknown(name: str) -> UnsupportedModel:
    return UnsupportedModel(f"the tensor {name[:80]} is not part of this architecture")
