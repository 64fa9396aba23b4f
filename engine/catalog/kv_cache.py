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


@dataclass(frozen=True, slots=True)
class EntryBytes:
    """One cached entry of one layer: ``main`` is attended to, ``index`` is an indexer's key."""

    main: Fraction
    index: Fraction = Fraction(0)

    @property
    def total(self) -> Fraction:
        return self.main + self.index


def entry_bytes(spec: ModelSpec, kv_bits: float = 16) -> EntryBytes:
    """Bytes of the model's cached entries, a rotated key, scales and all.

    ``kv_bits`` are the bits of a stored number, scales included. For sparse and compressed latent
    attention, 8 bits mean the layout of DeepSeek's own kernels. Layers without an indexer keep
    ``main`` only.

    Raises:
        TypeError: sparse attention without latent attention, which no model has.
    """
    bits = Fraction(kv_bits)
    pattern = spec.attention
    if isinstance(pattern, CompressedAttention):
        return _compressed_entry(spec, pattern, bits)
    if isinstance(pattern, SparseAttention):
        return _sparse_entry(spec, pattern, bits)
    if spec.mla is not None:
        return EntryBytes(spec.mla.cached_elements * bits / 8)
    return EntryBytes(2 * spec.kv_size * bits / 8)


def kv_groups(spec: ModelSpec, kv_bits: float = 16) -> tuple[KvGroup, ...]:
    """The model's cache as groups of like layers; ``kv_bits`` as in ``entry_bytes``."""
    entry = entry_bytes(spec, kv_bits)
    pattern = spec.attention
    if isinstance(pattern, CompressedAttention):
        return (
            KvGroup(pattern.csa_layers, entry.total, tokens_per_entry=pattern.csa_ratio),
            KvGroup(pattern.hca_layers, entry.main, tokens_per_entry=pattern.hca_ratio),
            KvGroup(spec.num_layers, entry.main, window=pattern.window),
        )
    if isinstance(pattern, HybridLinearAttention):
        return (KvGroup(sum(map(pattern.is_full, range(spec.num_layers))), entry.main),)
    if isinstance(pattern, HybridMamba2Attention):
        return (KvGroup(pattern.layer_pattern.count("*"), entry.main),)
    if isinstance(pattern, SparseAttention):
        return (KvGroup(spec.num_layers, entry.total),)
    groups = pattern.window_groups(spec.num_layers)
    return tuple(KvGroup(group.layers, entry.main, group.window) for group in groups)


def _sparse_entry(spec: ModelSpec, pattern: SparseAttention, bits: Fraction) -> EntryBytes:
    """Latent and rotated key, and the indexer's key."""
    if spec.mla is None:
        raise TypeError("sparse attention is defined on latent attention only")
    if bits != _FP8_BITS:
        return EntryBytes(spec.mla.cached_elements * bits / 8, pattern.index_head_dim * bits / 8)
    latent = spec.mla.kv_lora_rank
    scales = latent // _SPARSE_FP8_SCALE_GROUP * _SPARSE_FP8_SCALE_BYTES
    main = latent + scales + 2 * spec.mla.qk_rope_head_dim
    return EntryBytes(Fraction(main), Fraction(pattern.index_head_dim + _INDEX_SCALE_BYTES))


def _compressed_entry(spec: ModelSpec, pattern: CompressedAttention, bits: Fraction) -> EntryBytes:
    """One shared key and value; the indexer's keys take 4 bits beside an fp8 cache."""
    if bits != _FP8_BITS:
        return EntryBytes(spec.head_dim * bits / 8, pattern.index_head_dim * bits / 8)
    rope = pattern.qk_rope_head_dim
    entry = Fraction(spec.head_dim - rope + 2 * rope + _COMPRESSED_FP8_SCALE_BYTES)
    return EntryBytes(entry, Fraction(pattern.index_head_dim, 2) + _INDEX_SCALE_BYTES)


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
