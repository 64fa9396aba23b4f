"""How the bytes of a KV cache come about, as expressions with their values."""

from __future__ import annotations

from engine.catalog.attention import CompressedAttention
from engine.catalog.kv_cache import KvGroup, kv_groups
from engine.catalog.models import ModelSpec
from engine.catalog.precision import whole


def entry_name(group: KvGroup) -> str:
    """What a group's layers store: positions, or one entry for several of them."""
    if group.tokens_per_entry > 1:
        return f"entries of {group.tokens_per_entry} positions"
    return "positions" if group.window is None else f"positions, {group.window:,} at most"


def kv_per_token_formula(model: ModelSpec, bits: float) -> str:
    """What one more token adds while every window has room."""
    if isinstance(model.attention, CompressedAttention):
        parts = [
            f"{group.layers} layers × {whole(group.bytes_per_entry):,} B / {group.tokens_per_entry}"
            for group in kv_groups(model, bits)
            if group.window is None and group.layers
        ]
        return f"{' + '.join(parts)} tokens an entry; windows are full"
    layers = sum(group.layers for group in kv_groups(model, bits))
    if model.mla is not None:
        entry = whole(kv_groups(model, bits)[0].bytes_per_entry)
        return f"{layers} layers × {entry:,} B of latent and keys, whatever the number of heads"
    return (
        f"2 × {layers} layers × {model.num_kv_heads} key-value heads × {model.head_dim} × "
        f"{bits:g} bits / 8"
    )
