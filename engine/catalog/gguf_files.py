"""File types of llama.cpp such as Q4_K_M: mixes of formats, and the bits they take on a model.

A file type is no format: it names one for most matrices and finer ones for those that matter
most. How many bits a weight takes then depends on the model. The rules are those of llama.cpp's
``llama-quantize`` for dense models with separate queries, keys and values; its table of bits per
weight is what tests compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from engine.catalog.model_spec import ModelSpec
from engine.catalog.precision import NumberFormat, get_format, mixed_format
from engine.errors import UnsupportedModel

_BLOCK = 256
_FUSED = frozenset({"GPT-2", "Phi"})
_LAYERS_OF_70B = 80


def _some_layers(layer: int, layers: int) -> bool:
    """The first and last eighth, and every third layer between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


@dataclass(frozen=True, slots=True)
class _FileType:
    """``base`` for most matrices; values and down projections of some layers in ``finer``.

    ``values`` and ``down`` say of which layers; the output matrix is always in q6_k.
    """

    base: str
    finer: str
    values: Callable[[int, int], bool]
    down: Callable[[int, int], bool]


def _never(layer: int, layers: int) -> bool:
    return False


FILE_TYPES: Mapping[str, _FileType] = {
    "q4_k_s": _FileType(
        "q4_k",
        "q5_k",
        lambda layer, layers: layer < 4,
        lambda layer, layers: layer < layers // 8,
    ),
    "q4_k_m": _FileType("q4_k", "q6_k", _some_layers, _some_layers),
    "q5_k_s": _FileType("q5_k", "q5_k", _never, _never),
    "q5_k_m": _FileType("q5_k", "q6_k", _some_layers, _some_layers),
}


def is_file_type(name: str) -> bool:
    """Whether the name, in any case, is one of a file type."""
    return name.lower() in FILE_TYPES


def file_type_format(name: str, spec: ModelSpec) -> NumberFormat:
    """The average format of a model's weights in a file of that type.

    Raises:
        KeyError: there is no such file type.
        UnsupportedModel: the rules of this type of model are not known (field "weights").
    """
    kind = FILE_TYPES[name.lower()]
    _require_known(spec)
    base, finer = get_format(kind.base).exact_bits, get_format(kind.finer).exact_bits
    layers = spec.num_layers
    value = spec.hidden_size * spec.kv_size
    down = spec.intermediate_size * spec.hidden_size
    table = spec.vocab_size * spec.hidden_size
    attention = 2 * spec.hidden_size * (spec.query_size + spec.kv_size)
    each = attention + spec.mlp.matrices * down
    matrices = layers * each + table * (1 if spec.tied_embeddings else 2)
    # Norms and biases are vectors, which stay in 32 bits.
    bits = matrices * base + (spec.num_parameters - matrices) * 32
    bits += table * (get_format("q6_k").exact_bits - base)
    for layer in range(layers):
        bits += _value_bits(kind, layer, layers, base, finer) * value
        bits += (finer - base) * down if kind.down(layer, layers) else 0
    return mixed_format(float(bits / spec.num_parameters))


def _value_bits(
    kind: _FileType, layer: int, layers: int, base: Fraction, finer: Fraction
) -> Fraction:
    """Bits that a value projection takes beyond the base format."""
    if kind.values(layer, layers):
        return finer - base
    # Of models of 70 billion parameters 8 heads share their values, which are kept finer.
    if layers == _LAYERS_OF_70B and kind.base == "q4_k":
        return get_format("q5_k").exact_bits - base
    return Fraction(0)


def _require_known(spec: ModelSpec) -> None:
    rows = (spec.hidden_size, spec.query_size, spec.intermediate_size)
    problem = None
    if not spec.is_dense:
        problem = "experts, latents and recurrent layers"
    elif spec.family in _FUSED:
        problem = "queries, keys and values in one matrix"
    elif any(size % _BLOCK for size in rows):
        problem = f"rows that are no multiple of {_BLOCK}"
    if problem:
        raise UnsupportedModel(
            f"how llama.cpp mixes formats for {problem} is not known here; choose one format, "
            "such as q4_k",
            field="weights",
        )
