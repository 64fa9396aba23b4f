"""The structures that ``csrc/step.h`` takes, field by field, and the functions around them."""

from __future__ import annotations

import ctypes
from typing import Any

from engine.inference.native.matrix import PackedMatrixStruct, declare

KV_KINDS = {"float32": 0, "bfloat16": 1, "int8": 2, "int4": 3}
"""Formats of a KV cache that native attention reads and writes."""

TABLE_KINDS = {"float32": 0, "bfloat16": 1}
"""Formats of an embedding table of its own."""

TIED_TABLE = 2
"""Instead of such a table: the rows of the head."""

_int, _pointer, _long = ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64

_Fields = tuple[tuple[str, Any], ...]


class LayerSpec(ctypes.Structure):
    """One decoder layer: ``LayerSpec`` of ``csrc/step.h``."""

    _fields_: _Fields = (
        *((name, PackedMatrixStruct) for name in ("qkv", "o", "gate_up", "down")),
        *((name, _pointer) for name in ("attn_norm", "mlp_norm", "q_norm", "k_norm")),
        ("kv", _pointer),
        ("kv_scales", _pointer),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
        ("window", _int),
        ("reserved", _int),
    )


class ModelSpec(ctypes.Structure):
    """A model and its KV cache: ``ModelSpec`` of ``csrc/step.h``."""

    _fields_: _Fields = (
        ("layers", ctypes.POINTER(LayerSpec)),
        *((name, _pointer) for name in ("embed", "turns", "final_norm", "holes")),
        ("head", PackedMatrixStruct),
        *((name, _long) for name in ("kind_stride", "head_stride", "slot_stride")),
        *((name, _int) for name in ("num_layers", "hidden", "num_heads", "num_kv_heads")),
        *((name, _int) for name in ("head_dim", "intermediate", "num_tokens", "num_holes")),
        *((name, _int) for name in ("embed_kind", "kv_kind", "block_size", "sinks")),
        ("num_slots", _int),
        ("norm_eps", ctypes.c_float),
    )


class StepSpec(ctypes.Structure):
    """The rows of one step, and where its results go: ``StepSpec`` of ``csrc/step.h``."""

    _fields_: _Fields = (
        *((name, _pointer) for name in ("token_ids", "first_rows", "starts", "first_blocks")),
        *((name, _pointer) for name in ("blocks", "sample_rows", "logits", "likeliest")),
        *((name, _pointer) for name in ("logsumexp", "stages")),
        *((name, _int) for name in ("num_sequences", "num_sampled", "num_threads", "num_layers")),
    )


def declare_all(library: ctypes.CDLL) -> None:
    """Tell ctypes the types of all functions of the library.

    Raises:
        AttributeError: it lacks one of them.
    """
    declare(library)
    for name, result, arguments in (
        ("firsttoken_new", _pointer, (ctypes.POINTER(ModelSpec),)),
        ("firsttoken_free", None, (_pointer,)),
        ("firsttoken_step", ctypes.c_int, (_pointer, ctypes.POINTER(StepSpec))),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
