"""The decoder, top-down like the mathematics.

    x = embed[token]
    for each layer:   x = x + Wo · attention(norm(x) · Wqkv, rotated)
                      x = x + Wdown · (silu(gate) * up),   gate, up = norm(x) · Wgate_up
    logits = norm(x) · Whead

That is a Llama. In other families a layer has more to it, or other parts in the same places (a
window, norms of queries and keys, norms behind attention and MLP, biases, another activation):
what a layer does is data of the layer, and nothing here asks for a family's name.

Shapes: t tokens of all sequences of a step, one flat dimension · m model width (hidden_size) ·
h KV heads · g query heads per KV head · d head_dim · p 2 (keys, values) · v vocabulary · n rows
that sample.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.inference.kv_cache.vocabulary import KEYS_AND_VALUES, KVCache
from engine.inference.model.attention import AttentionSpec
from engine.inference.model.batch import StepBatch
from engine.inference.model.config import ModelConfig
from engine.inference.model.linear import Embedding, Linear
from engine.inference.model.mlp import ACTIVATIONS
from engine.inference.model.norm import Norm, RMSNorm
from engine.inference.model.rope import RotaryTable, rotate_

StageDone = Callable[[str], None]
"""Called with the name of a stage (embed, layers, logits) when it has been computed."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. ``qkv`` gives q, k and v side by side, ``gate_up`` both halves, or the one
    of an MLP without a gate.

    ``rotary``: which of the model's tables turns queries and keys; None where none does.
    ``qk_norm``: over the query and key heads side by side. ``attn_post_norm`` and
    ``mlp_post_norm``: on the way to the residual stream.
    """

    attn_norm: Norm
    qkv: Linear
    o: Linear
    mlp_norm: Norm
    gate_up: Linear
    down: Linear
    attention: AttentionSpec
    rotary: int | None = 0
    qk_norm: RMSNorm | None = None
    attn_post_norm: Norm | None = None
    mlp_post_norm: Norm | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all weights of the layer."""
        always = (self.attn_norm, self.qkv, self.o, self.mlp_norm, self.gate_up, self.down)
        maybe = (self.qk_norm, self.attn_post_norm, self.mlp_post_norm)
        return sum(part.nbytes for part in (*always, *maybe) if part is not None)


@dataclass(frozen=True, slots=True)
class Weights:
    """All that was loaded. Where ``head`` is tied to ``embed``, a plain or quantised layer reads
    that very table; a packed one has a copy, because looking up rows needs the plain layout.

    ``positions_pm``: float32, one row a position, where the model learned them.
    """

    embed: Embedding
    layers: tuple[Layer, ...]
    final_norm: Norm
    head: Linear
    positions_pm: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that the weights take in memory; a table that is shared counts once."""
        total = self.final_norm.nbytes + self.head.nbytes
        if not self.head.shares_memory_with(self.embed.storage):
            total += self.embed.nbytes
        if self.positions_pm is not None:
            total += self.positions_pm.nbytes
        return total + sum(layer.nbytes for layer in self.layers)


class Transformer:
    """A decoder in one dtype on one device; which one, its config and its layers say."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        rotary: tuple[RotaryTable, ...],
        dtype: torch.dtype,
        max_positions: int,
    ) -> None:
        """``rotary``: the tables that layers name by their number, each of ``max_positions``."""
        self.config = config
        self.weights = weights
        self.rotary = rotary
        self.dtype = dtype
        self.device = weights.embed.storage.device
        self.max_positions = max_positions
        self._activation = ACTIVATIONS[config.mlp]
        self._heads = (
            config.num_attention_heads,
            config.num_kv_heads,
            config.queries_per_kv_head,
            config.head_dim,
        )

    def logits(
        self, batch: StepBatch, cache: KVCache, stage_done: StageDone = lambda name: None
    ) -> Tensor:
        """Run a step: store its keys and values, and give the logits of the rows that sample.

        ``[n, v]`` in float32, in the order of ``batch.sampled``; n may be 0.
        """
        x_tm = self._embed(batch)
        turns = [table.at(batch.positions_t) for table in self.rotary]
        stage_done("embed")
        last = self.config.num_layers - 1
        for index, layer in enumerate(self.weights.layers):
            mixed_tm = self._attention(layer.attn_norm(x_tm), layer, index, turns, batch, cache)
            if index == last and batch.sample_rows is not None:
                # Beyond the last keys and values, only rows that sample are of use to anyone.
                x_tm, mixed_tm = x_tm[batch.sample_rows], mixed_tm[batch.sample_rows]
            x_tm += _normed(layer.o(mixed_tm), layer.attn_post_norm)
            x_tm += _normed(self._mlp(layer.mlp_norm(x_tm), layer), layer.mlp_post_norm)
        stage_done("layers")
        logits_nv = self._head(x_tm)
        stage_done("logits")
        return logits_nv

    def _embed(self, batch: StepBatch) -> Tensor:
        # The residual stream is float32 in every dtype: adding to it 2 · layers times in bfloat16
        # would cost a third of the model's accuracy and no less time.
        x_tm = self.weights.embed(batch.token_ids_t).float()
        if self.config.embedding_scale != 1:
            x_tm *= self.config.embedding_scale
        if self.weights.positions_pm is not None:
            x_tm += self.weights.positions_pm[batch.positions_t]
        return x_tm

    def _attention(
        self,
        x_tm: Tensor,
        layer: Layer,
        index: int,
        turns: list[Tensor],
        batch: StepBatch,
        cache: KVCache,
    ) -> Tensor:
        """Mixed values of all query heads side by side, ``[t, h * g * d]``."""
        num_queries, num_kv, group, dim = self._heads
        heads = layer.qkv(x_tm).view(x_tm.shape[0], -1, dim)
        compared = heads[:, : num_queries + num_kv]
        if layer.qk_norm is not None:
            compared.copy_(layer.qk_norm(compared.float()))
        if layer.rotary is not None:
            rotate_(compared, turns[layer.rotary])
        kv_tphd = heads[:, num_queries:].view(-1, KEYS_AND_VALUES, num_kv, dim)
        cache.write(index, kv_tphd, batch.slots)
        q_thgd = heads[:, :num_queries].view(-1, num_kv, group, dim)
        mixed_thgd = batch.attend(q_thgd, cache, index, layer.attention)
        return mixed_thgd.reshape(-1, num_queries * dim)

    def _mlp(self, x_tm: Tensor, layer: Layer) -> Tensor:
        return layer.down(self._activation(layer.gate_up(x_tm)))

    def _head(self, x_nm: Tensor) -> Tensor:
        logits_nv = self.weights.head(self.weights.final_norm(x_nm)).float()
        cap = self.config.logit_softcap
        if cap is not None:
            logits_nv.div_(cap).tanh_().mul_(cap)
        return logits_nv


def first_layers(transformer: Transformer, count: int) -> Transformer:
    """The same model without its later layers; all weights are shared.

    Raises:
        ValueError: it has not so many layers, or none is left.
    """
    if not 1 <= count <= transformer.config.num_layers:
        raise ValueError(f"the model has {transformer.config.num_layers} layers")
    shallow = copy.copy(transformer)
    shallow.config = replace(transformer.config, num_layers=count)
    shallow.weights = replace(transformer.weights, layers=transformer.weights.layers[:count])
    return shallow


def _normed(x_tm: Tensor, norm: Norm | None) -> Tensor:
    return x_tm if norm is None else norm(x_tm.float())
