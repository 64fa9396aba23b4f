"""Which parts of a model a checkpoint leaves unquantized, from the names in its lists.

Lists name modules: "lm_head", "model.layers.*.self_attn", "model.layers.3.mlp.gate*",
"re:.*shared_experts.*". Each entry is matched against the names that parts of models are known
to have; one that means anything else is refused. No pattern of a file is ever run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.catalog.model_spec import ModelSpec
from engine.catalog.parameters import layer_parameters


class Part(StrEnum):
    """A part of a model whose matrices a checkpoint stores in one format."""

    EMBEDDING = "embedding"
    HEAD = "lm_head"
    MIXER = "mixer"
    DENSE_MLP = "dense_mlp"
    ROUTER = "router"
    SHARED_EXPERTS = "shared_experts"
    EXPERTS = "experts"


_MLP = frozenset({Part.DENSE_MLP, Part.ROUTER, Part.SHARED_EXPERTS, Part.EXPERTS})
_LAYER = frozenset({Part.MIXER, *_MLP})
_NOTHING: frozenset[Part] = frozenset()

_NAMES: Mapping[str, frozenset[Part]] = {
    **dict.fromkeys(("self_attn", "linear_attn", "attn"), frozenset({Part.MIXER})),
    **dict.fromkeys(("mlp", "block_sparse_moe", "ffn"), _MLP),
    **dict.fromkeys(
        ("gate", "router", "mlp.gate", "mlp.router", "block_sparse_moe.gate", "ffn.gate"),
        frozenset({Part.ROUTER}),
    ),
    **dict.fromkeys(
        (
            "shared_expert", "shared_experts", "mlp.shared_expert", "mlp.shared_experts",
            "ffn.shared_experts",
        ),
        frozenset({Part.SHARED_EXPERTS}),
    ),
    **dict.fromkeys(
        ("experts", "mlp.experts", "block_sparse_moe.experts", "ffn.experts"),
        frozenset({Part.EXPERTS}),
    ),
    "mlp.(gate|up|gate_up|down)_proj": frozenset({Part.DENSE_MLP}),
    **dict.fromkeys(("lm_head", "head"), frozenset({Part.HEAD})),
    **dict.fromkeys(("embed_tokens", "embed"), frozenset({Part.EMBEDDING})),
    # Far below what an average of bits shows: vectors, and a column for each head.
    **dict.fromkeys(
        (
            "norm", "input_layernorm", "post_attention_layernorm", "e_score_correction_bias",
            "mlp.gate.e_score_correction_bias", "self_attn.q_a_layernorm",
            "self_attn.kv_a_layernorm", "self_attn.indexer.k_norm", "self_attn.indexer.k_norm.bias",
            "self_attn.indexers_proj", "mlp.shared_expert_gate", "shared_expert_gate",
        ),
        _NOTHING,
    ),
    # Other towers and the layers that predict further tokens are not counted at all.
    **dict.fromkeys(
        (
            "mtp", "visual", "vision_tower", "vision_model", "mm_projector",
            "multi_modal_projector", "embed_vision", "patch_merge_mlp",
        ),
        _NOTHING,
    ),
}  # fmt: skip

_IN_A_LAYER = re.compile(r"layers\.(\d{1,5}|\*)(\*|\.?)(.*)")


@dataclass(frozen=True, slots=True)
class Kept:
    """Parts that stay as they are, in one layer or in all of them (None)."""

    layer: int | None
    parts: frozenset[Part]


def read_kept(entry: str, num_layers: int) -> Kept | None:
    """What one entry of a list keeps, or None where its name is not known."""
    name = _plain(entry)
    if name.startswith("mtp."):
        return Kept(None, _NOTHING)
    found = _IN_A_LAYER.fullmatch(name)
    if found is None:
        parts = _NAMES.get(name)
        return None if parts is None else Kept(None, parts)
    number, _, rest = found.groups()
    layer = None if number == "*" else int(number)
    if layer is not None and layer >= num_layers:
        return Kept(None, _NOTHING)  # a layer that predicts a further token
    parts = _NAMES.get(rest) if rest else _LAYER
    return None if parts is None else Kept(layer, parts)


def _plain(entry: str) -> str:
    """The name in an entry, without what stands for "any name" and the path to the text model."""
    name = entry
    if name.startswith("re:"):
        name = name[3:].removeprefix("^").removesuffix("$").replace("\\.", ".")
        name = name.removeprefix(".*").removesuffix(".*")
    name = name.removeprefix("*").removesuffix("*").strip(".")
    while (shorter := name.removeprefix("model.").removeprefix("language_model.")) != name:
        name = shorter
    return name


def part_sizes(spec: ModelSpec, kept: Iterable[Kept]) -> dict[Part, tuple[int, int]]:
    """For each part, its parameters that are quantized if it is, and those that are kept.

    Norms around the parts are of no part: they are always kept.
    """
    everywhere: set[Part] = set()
    somewhere: dict[int, set[Part]] = {}
    for item in kept:
        target = everywhere if item.layer is None else somewhere.setdefault(item.layer, set())
        target |= item.parts
    sizes: dict[Part, tuple[int, int]] = dict.fromkeys(Part, (0, 0))

    def add(part: Part, count: int, stays: bool) -> None:
        quantized, rest = sizes[part]
        sizes[part] = (quantized, rest + count) if stays else (quantized + count, rest)

    count = spec.parameters
    add(Part.EMBEDDING, count.embedding + count.positions, Part.EMBEDDING in everywhere)
    add(Part.HEAD, count.lm_head, Part.HEAD in everywhere)
    for layer in range(spec.num_layers):
        left = everywhere | somewhere.get(layer, set())
        size = layer_parameters(spec, layer)
        add(Part.MIXER, size.mixer, Part.MIXER in left)
        add(Part.DENSE_MLP, size.dense_mlp, Part.DENSE_MLP in left)
        add(Part.ROUTER, size.router, Part.ROUTER in left)
        add(Part.SHARED_EXPERTS, size.shared_experts, Part.SHARED_EXPERTS in left)
        add(Part.EXPERTS, size.experts, Part.EXPERTS in left)
    return sizes
