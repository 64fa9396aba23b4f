"""The decoder, top-down like the mathematics.

    x = embed[token]
    for each layer:   x = x + Wo · attention(norm(x) · Wqkv, rotated)
                      x = x + Wdown · (silu(gate) * up),   gate, up = norm(x) · Wgate_up
    logits = norm(x) · Whead

Shapes: t tokens of all sequences of a step, one flat dimension · m model width (hidden_size) ·
h KV heads · g query heads per KV head · d head_dim · p 2 (keys, values) · v vocabulary · n rows
that sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.inference.kv_cache.vocabulary import KEYS_AND_VALUES, KVCache
from engine.inference.model.attention import AttentionSpec
from engine.inference.model.batch import StepBatch
from engine.inference.model.config import ModelConfig
from engine.inference.model.linear import Embedding, Linear
from engine.inference.model.norm import RMSNorm
from engine.inference.model.rope import RotaryTable, rotate_

StageDone = Callable[[str], None]
"""Called with the name of a stage (embed, layers, logits) when it has been computed."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. ``qkv`` gives q, k and v side by side, ``gate_up`` both halves."""

    attn_norm: RMSNorm
    qkv: Linear
    o: Linear
    mlp_norm: RMSNorm
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """All that was loaded. Where ``head`` is tied to ``embed``, a plain or quantised layer reads
    that very table; a packed one has a copy, because looking up rows needs the plain layout."""

    embed: Embedding
    layers: tuple[Layer, ...]
    final_norm: RMSNorm
    head: Linear

    @property
    def nbytes(self) -> int:
        """Bytes that the weights take in memory; a table that is shared counts once."""
        parts: list[Linear | RMSNorm | Embedding] = [self.final_norm, self.head]
        if not self.head.shares_memory_with(self.embed.storage):
            parts.append(self.embed)
        for layer in self.layers:
            parts += [layer.attn_norm, layer.qkv, layer.o]
            parts += [layer.mlp_norm, layer.gate_up, layer.down]
        return sum(part.nbytes for part in parts)


class Transformer:
    """A decoder of the Llama family: pre-norm, rotary GQA attention, SwiGLU."""

    def __init__(
        self, config: ModelConfig, weights: Weights, rotary: RotaryTable, dtype: torch.dtype
    ) -> None:
        self.config = config
        self.weights = weights
        self.dtype = dtype
        self.device = weights.embed.storage.device
        self.rotary = rotary
        self._heads = (
            config.num_attention_heads,
            config.num_kv_heads,
            config.queries_per_kv_head,
            config.head_dim,
        )
        self._spec = AttentionSpec(scale=config.head_dim**-0.5)

    @property
    def max_positions(self) -> int:
        """Positions that a sequence can have."""
        return self.rotary.max_positions

    def logits(
        self, batch: StepBatch, cache: KVCache, stage_done: StageDone = lambda name: None
    ) -> Tensor:
        """Run a step: store its keys and values, and give the logits of the rows that sample.

        ``[n, v]`` in float32, in the order of ``batch.sampled``; n may be 0.
        """
        # The residual stream is float32 in every dtype: adding to it 2 · layers times in bfloat16
        # would cost a third of the model's accuracy and no less time.
        x_tm = self.weights.embed(batch.token_ids_t).float()
        turns = self.rotary.at(batch.positions_t)
        stage_done("embed")
        last = self.config.num_layers - 1
        for index, layer in enumerate(self.weights.layers):
            mixed_tm = self._attention(layer.attn_norm(x_tm), layer, index, turns, batch, cache)
            if index == last and batch.sample_rows is not None:
                # Beyond the last keys and values, only rows that sample are of use to anyone.
                x_tm, mixed_tm = x_tm[batch.sample_rows], mixed_tm[batch.sample_rows]
            x_tm += layer.o(mixed_tm)
            x_tm += layer.down(self._swiglu(layer.mlp_norm(x_tm), layer))
        stage_done("layers")
        logits_nv = self.weights.head(self.weights.final_norm(x_tm)).float()
        stage_done("logits")
        return logits_nv

    def _attention(
        self,
        x_tm: Tensor,
        layer: Layer,
        index: int,
        turns: Tensor,
        batch: StepBatch,
        cache: KVCache,
    ) -> Tensor:
        """Mixed values of all query heads side by side, ``[t, h * g * d]``."""
        num_queries, num_kv, group, dim = self._heads
        heads = layer.qkv(x_tm).view(x_tm.shape[0], -1, dim)
        rotate_(heads[:, : num_queries + num_kv], turns)
        kv_tphd = heads[:, num_queries:].view(-1, KEYS_AND_VALUES, num_kv, dim)
        cache.write(index, kv_tphd, batch.slots)
        q_thgd = heads[:, :num_queries].view(-1, num_kv, group, dim)
        return batch.attend(q_thgd, cache, index, self._spec).reshape(-1, num_queries * dim)

    def _swiglu(self, x_tm: Tensor, layer: Layer) -> Tensor:
        """silu(gate) * up (Shazeer 2020, arXiv 2002.05202), ``[t, intermediate]``."""
        gate, up = layer.gate_up(x_tm).chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)
