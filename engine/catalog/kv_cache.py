"""How many bytes of KV cache a model needs, from its structure alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from engine.catalog.attention import (
    CompressedAttention,
    HybridLinearAttention,
    HybridMamba2Attention,
    SparseAttention,
)
from engine.catalog.precision import Number, whole

if TYPE_CHECKING:
    from engine.catalog.model_spec import ModelSpec

_FP8_BITS = 8
# Layouts of 8-bit latent caches, as DeepSeek's own kernels store them: the latent in fp8 with its
# scales, the rotated key left in bf16, and the indexer's key with its scale.
_SPARSE_FP8_SCALE_GROUP = 128
_SPARSE_FP8_SCALE_BYTES = 4
_COMPRESSED_FP8_SCALE_BYTES = 8
_INDEX_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers whose caches have the same form.

    A layer stores ``bytes_per_entry`` for every ``tokens_per_entry`` tokens, of the last ``window``
    positions only where there is a window.
    """

    layers: int
    bytes_per_entry: Fraction
    window: int | None = None
    tokens_per_entry: int = 1

    def entries(self, tokens: int, block_size: int = 1) -> int:
        """Entries a layer holds for ``tokens`` positions, rounded up to whole blocks."""
        kept = tokens if self.window is None else min(tokens, self.window)
        count = kept // self.tokens_per_entry
        return -(-count // block_size) * block_size

    def bytes_for(self, tokens: int, block_size: int = 1) -> Fraction:
        return self.layers * self.bytes_per_entry * self.entries(tokens, block_size)


def kv_groups(spec: ModelSpec, kv_bits: float = 16) -> tuple[KvGroup, ...]:
    """The model's cache as groups of like layers.

    ``kv_bits`` are the bits of a stored number, scales included. For sparse and compressed latent
    attention, 8 bits mean the layout of DeepSeek's own kernels.
    """
    bits = Fraction(kv_bits)
    pattern = spec.attention
    if isinstance(pattern, CompressedAttention):
        return _compressed_groups(spec, pattern, bits)
    if spec.mla is not None:
        entry = spec.mla.cached_elements * bits / 8
        if isinstance(pattern, SparseAttention):
            entry = _sparse_entry(spec, pattern, bits)
        return (KvGroup(spec.num_layers, entry),)
    entry = 2 * spec.kv_size * bits / 8
    if isinstance(pattern, HybridLinearAttention):
        return (KvGroup(sum(map(pattern.is_full, range(spec.num_layers))), entry),)
    if isinstance(pattern, HybridMamba2Attention):
        return (KvGroup(pattern.layer_pattern.count("*"), entry),)
    if isinstance(pattern, SparseAttention):
        raise TypeError("sparse attention is defined on latent attention only")
    groups = pattern.window_groups(spec.num_layers)
    return tuple(KvGroup(group.layers, entry, group.window) for group in groups)


def _sparse_entry(spec: ModelSpec, pattern: SparseAttention, bits: Fraction) -> Fraction:
    """Latent and rotated key, and the indexer's key."""
    if spec.mla is None:
        raise TypeError("sparse attention is defined on latent attention only")
    if bits != _FP8_BITS:
        return (spec.mla.cached_elements + pattern.index_head_dim) * bits / 8
    latent = spec.mla.kv_lora_rank
    scales = latent // _SPARSE_FP8_SCALE_GROUP * _SPARSE_FP8_SCALE_BYTES
    main = latent + scales + 2 * spec.mla.qk_rope_head_dim
    return Fraction(main + pattern.index_head_dim + _INDEX_SCALE_BYTES)


def _compressed_groups(
    spec: ModelSpec, pattern: CompressedAttention, bits: Fraction
) -> tuple[KvGroup, ...]:
    """Compressed entries, the indexer's keys (4 bits beside an fp8 cache), and the windows."""
    if bits == _FP8_BITS:
        rope = pattern.qk_rope_head_dim
        entry = Fraction(spec.head_dim - rope + 2 * rope + _COMPRESSED_FP8_SCALE_BYTES)
        index = Fraction(pattern.index_head_dim, 2) + _INDEX_SCALE_BYTES
    else:
        entry = spec.head_dim * bits / 8
        index = pattern.index_head_dim * bits / 8
    return (
        KvGroup(pattern.csa_layers, entry + index, tokens_per_entry=pattern.csa_ratio),
        KvGroup(pattern.hca_layers, entry, tokens_per_entry=pattern.hca_ratio),
        KvGroup(spec.num_layers, entry, window=pattern.window),
    )


def kv_bytes_per_token(spec: ModelSpec, kv_bits: float = 16) -> Number:
    """Bytes that one more token adds while every window still has room.

    The windows of compressed attention are left out: they fill within their first tokens.
    """
    compressed = isinstance(spec.attention, CompressedAttention)
    groups = kv_groups(spec, kv_bits)
    growing = [group for group in groups if not (compressed and group.window is not None)]
    return whole(
        sum(
            (group.layers * group.bytes_per_entry / group.tokens_per_entry for group in growing),
            Fraction(0),
        )
    )


def kv_cache_bytes(
    spec: ModelSpec, tokens: int, kv_bits: float = 16, block_size: int = 1
) -> Number:
    """Bytes that one sequence of ``tokens`` positions holds, in whole blocks a layer."""
    groups = kv_groups(spec, kv_bits)
    cached = sum((group.bytes_for(tokens, block_size) for group in groups), Fraction(0))
    return whole(cached) + state_bytes_per_sequence(spec)


def state_bytes_per_sequence(spec: ModelSpec) -> int:
    """Bytes of recurrent state a sequence holds, whatever its length; 0 without such layers."""
    pattern = spec.attention
    if isinstance(pattern, HybridLinearAttention):
        linear = sum(not pattern.is_full(layer) for layer in range(spec.num_layers))
        return linear * pattern.layer_state_bytes
    if isinstance(pattern, HybridMamba2Attention):
        return pattern.layer_pattern.count("M") * pattern.layer_state_bytes
    return 0
