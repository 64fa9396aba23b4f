"""A transformer's weights as the structures of the native step.

Matrices that the transformer has not packed itself are packed once more, once for all decoders of a
transformer; norms, tables and the KV cache are read where they are.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np
import torch

from engine.catalog.parts import Mlp
from engine.catalog.parts import Norm as NormKind
from engine.inference.kv_cache.vocabulary import KVCache
from engine.inference.model.config import ModelConfig
from engine.inference.model.linear import Linear, PlainEmbedding
from engine.inference.model.norm import Norm, RMSNorm
from engine.inference.model.transformer import Layer, Transformer
from engine.inference.native.abi import KV_KINDS, TABLE_KINDS, TIED_TABLE, LayerSpec, ModelSpec
from engine.inference.native.linear import NativeLinear
from engine.inference.native.matrix import MatrixPacker, PackedMatrixStruct
from engine.inference.quantization.linear import QuantizedLinear

_HEAD_DIMS = frozenset(16 * vectors for vectors in (1, 2, 3, 4, 5, 6, 8, 16))


@dataclass(slots=True, weakref_slot=True)
class PackedWeights:
    """What all decoders of one transformer share: its packed matrices and the addresses of its
    norms, with all memory that they point to.

    ``layers``: all but the KV cache and the window, which are a decoder's own. ``nbytes``: what was
    packed for native steps alone.
    """

    transformer: Transformer
    library: ctypes.CDLL
    layers: ctypes.Array[LayerSpec]
    head: PackedMatrixStruct = field(default_factory=PackedMatrixStruct)
    final_norm: int = 0
    nbytes: int = 0
    kept: list[object] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """``spec`` and all memory that it points to."""

    spec: ModelSpec
    packed: PackedWeights
    kept: tuple[object, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the packed matrices, which other decoders may share."""
        return self.packed.nbytes


def unsupported(transformer: Transformer, cache: KVCache) -> str | None:
    """Why this model or cache cannot be run natively; None if it can."""
    reason = unsupported_model(transformer.config, transformer.device)
    if reason is not None:
        return reason
    if cache.sinks and transformer.config.window_of(0) is not None:
        return "a cache with sinks under layers with windows of their own"
    if cache.native_view().format not in KV_KINDS:
        return f"a KV cache in {cache.native_view().format}"
    return None


def unsupported_model(config: ModelConfig, device: torch.device) -> str | None:
    """Why such a model cannot be run natively, whatever its cache; None if it can."""
    if device.type != "cpu":
        return "it runs on the CPU only"
    if config.head_dim not in _HEAD_DIMS:
        return f"heads of {config.head_dim} numbers"
    return _part_that_is_not_run(config)


def _part_that_is_not_run(config: ModelConfig) -> str | None:
    """What the model has beyond the parts of Llama, Mistral, Qwen2 and Qwen3."""
    parts = {
        "LayerNorm": config.norm is not NormKind.RMS,
        f"an MLP of the kind {config.mlp.value}": config.mlp is not Mlp.SWIGLU,
        "learned positions": config.rope_theta is None,
        "two rotary embeddings": config.local_rope_theta is not None,
        "norms behind attention and MLP": config.post_norms,
        "capped logits": config.logit_softcap is not None,
        "scaled embeddings": config.embedding_scale != 1,
    }
    return next((part for part, there in parts.items() if there), None)


def native_weights(
    transformer: Transformer,
    cache: KVCache,
    library: ctypes.CDLL,
    *,
    num_tokens: int,
    unknown_ids: list[int],
) -> NativeWeights:
    """A model that is not ``unsupported``, packed unless another decoder has it already.

    ``num_tokens``, ``unknown_ids``: which ids can be sampled, see ``Sampler``.
    """
    config, weights = transformer.config, transformer.weights
    packed = _SHARED.get(transformer, library)
    view = cache.native_view()
    # A copy: the structures hold addresses, and what lies there stays where it is.
    layers = type(packed.layers).from_buffer_copy(packed.layers)
    for index, layer in enumerate(weights.layers):
        layers[index].kv = view.data[index]
        layers[index].kv_scales = view.scales[index] if view.scales else None
        windows = [window for window in (layer.attention.window, cache.window) if window]
        layers[index].window = min(windows, default=0)
    embed, plain = weights.embed.storage, isinstance(weights.embed, PlainEmbedding)
    holes = np.array(sorted(unknown_ids), dtype=np.int32)
    spec = ModelSpec(
        layers=layers,
        embed=embed.data_ptr() if plain else None,
        turns=transformer.rotary[0].turns.data_ptr(),
        final_norm=packed.final_norm,
        holes=holes.ctypes.data,
        head=packed.head,
        kind_stride=view.kind_stride,
        head_stride=view.head_stride,
        slot_stride=view.slot_stride,
        num_layers=config.num_layers,
        hidden=config.hidden_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        intermediate=config.intermediate_size,
        num_tokens=num_tokens,
        num_holes=len(holes),
        embed_kind=TABLE_KINDS[_name(embed.dtype)] if plain else TIED_TABLE,
        kv_kind=KV_KINDS[view.format],
        block_size=cache.block_size,
        sinks=cache.sinks,
        num_slots=view.num_slots,
        norm_eps=config.norm_eps,
    )
    return NativeWeights(spec, packed, (layers, holes, cache))


class _Shared:
    """Packed weights of this process: as long as a decoder has them, the next one gets them too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # An id says who it is for as long as the entry lives, because the entry keeps both.
        self._packed: WeakValueDictionary[tuple[int, int], PackedWeights] = WeakValueDictionary()

    def get(self, transformer: Transformer, library: ctypes.CDLL) -> PackedWeights:
        """Those of the transformer. Who asks while another thread packs them waits for it."""
        key = (id(transformer), id(library))
        with self._lock:
            packed = self._packed.get(key)
            if packed is None:
                packed = _pack(transformer, library)
                self._packed[key] = packed
            return packed


_SHARED = _Shared()


def _pack(transformer: Transformer, library: ctypes.CDLL) -> PackedWeights:
    weights = transformer.weights
    made = PackedWeights(transformer, library, (LayerSpec * len(weights.layers))())
    packer = _Packer(MatrixPacker(library), made)
    for index, layer in enumerate(weights.layers):
        packer.fill(made.layers[index], layer)
    made.final_norm = packer.norm(weights.final_norm)
    made.head = packer.matrix(weights.head)
    return made


class _Packer:
    def __init__(self, packer: MatrixPacker, made: PackedWeights) -> None:
        self._packer = packer
        self._made = made
        self._bfloat16 = made.transformer.dtype is torch.bfloat16
        self._num_heads = made.transformer.config.num_attention_heads

    def fill(self, spec: LayerSpec, layer: Layer) -> None:
        spec.attn_norm = self.norm(layer.attn_norm)
        spec.qkv = self.matrix(layer.qkv)
        spec.o = self.matrix(layer.o)
        spec.mlp_norm = self.norm(layer.mlp_norm)
        spec.gate_up = self.matrix(layer.gate_up)
        spec.down = self.matrix(layer.down)
        spec.scale = layer.attention.scale
        spec.softcap = layer.attention.softcap or 0.0
        if layer.qk_norm is not None:
            # One row for each head; those of all query heads are the same, and of all key heads.
            heads = layer.qk_norm.weight_d
            spec.q_norm = self.norm(layer.qk_norm)
            spec.k_norm = heads[self._num_heads].data_ptr()

    def norm(self, norm: Norm) -> int:
        if not isinstance(norm, RMSNorm):
            raise ValueError("the native step has no other norm than RMSNorm")
        self._made.kept.append(norm)
        return norm.weight_d.data_ptr()

    def matrix(self, linear: Linear) -> PackedMatrixStruct:
        if isinstance(linear, NativeLinear):
            self._made.kept.append(linear)
            return linear.matrix.struct
        if isinstance(linear, QuantizedLinear):
            packed = self._packer.pack_quantized(linear.packed.unpack(), linear.bias_o)
        else:
            weight_oi, bias_o = linear.plain()
            packed = self._packer.pack_floats(weight_oi, bias_o, bfloat16=self._bfloat16)
        self._made.kept.append(packed)
        self._made.nbytes += packed.nbytes
        return packed.struct


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
