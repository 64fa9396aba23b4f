"""The slow path that every fast one is compared with: float32, no cache, one sequence at a time.

Written straight from the formulas and sharing no code with the fast path: textbook rotation of
halves, keys and values repeated for their query heads, plain matrix products, everything computed
again for every call. It is also where one looks inside: a *tap* sees, and may replace, every
tensor on the way, so that the fast path needs no hooks.

Every family that the engine runs is here, told apart by the fields of its config.

Shapes: t tokens · m model width · H query heads · h KV heads · d head_dim · i width of the MLP ·
v vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from engine.catalog.parts import Mlp, Norm
from engine.inference.model.config import ModelConfig
from engine.inference.weights.checkpoint import Checkpoint

Tap = Callable[[str, int, Tensor], Tensor]
"""Called with the name of a point, the layer and the tensor there; what it gives back takes the
tensor's place. It must not change the tensor in place."""

WHOLE_MODEL = -1
"""The layer of a point that belongs to none: embed, final and logits."""

TAP_POINTS: dict[str, str] = {
    "embed": "[t, m] what the first layer reads",
    "attn_in": "[t, m] normed input of the attention",
    "q": "[H, t, d] queries, not rotated, normed if the model norms them",
    "k": "[h, t, d] keys, the same",
    "q_rotated": "[H, t, d] queries as they are compared",
    "k_rotated": "[h, t, d] keys as they are compared",
    "v": "[h, t, d] values",
    "scores": "[H, t, t] scaled and soft-capped q · k of every pair, later positions included",
    "masked": "[H, t, t] the same with -inf where a query may not look",
    "weights": "[H, t, t] softmax of the masked scores",
    "mixed": "[H, t, d] values mixed by the weights",
    "attn_out": "[t, m] what the attention adds to the residual stream",
    "mlp_in": "[t, m] normed input of the MLP",
    "gate": "[t, i] before its activation function, in models with a gated MLP",
    "up": "[t, i] what the gate is multiplied with; before the activation in other models",
    "act": "[t, i] what the last matrix of the MLP reads",
    "mlp_out": "[t, m] what the MLP adds to the residual stream",
    "residual": "[t, m] the residual stream after the layer",
    "final": "[t, m] normed input of the LM head",
    "logits": "[t, v] row i scores the token after position i",
}
"""The points in the order of one layer's computation, and the shapes there."""


def _untouched(point: str, layer: int, tensor: Tensor) -> Tensor:
    return tensor


class ReferenceModel:
    """Logits of all positions of one token sequence, by full recomputation on the CPU.

    ``embed``, ``layer`` and ``head`` are the parts that ``logits`` is made of, for whoever keeps
    the residual stream and wants to look at one layer again.
    """

    def __init__(self, checkpoint: Checkpoint, weights: Mapping[str, Tensor] | None = None) -> None:
        """``weights``: float32 tensors by their names in the checkpoint, asked for at each use; by
        default all of them are read now and kept."""
        self.config: ModelConfig = checkpoint.config
        self._names = frozenset(checkpoint.names)
        self._weights = weights or {
            name: torch.from_numpy(checkpoint.tensor(name)) for name in checkpoint.names
        }

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int], tap: Tap | None = None) -> Tensor:
        """``[t, v]`` in float32: row i scores the token after position i.

        ``tap`` is called at each of ``TAP_POINTS``, in every layer that has it.
        """
        x = self.embed(token_ids, tap)
        for index in range(self.config.num_layers):
            x = self.layer(index, x, tap)
        return self.head(x, tap)

    @torch.inference_mode()
    def embed(self, token_ids: Sequence[int], tap: Tap | None = None) -> Tensor:
        """``[t, m]``: what the first layer reads."""
        tap = tap or _untouched
        x = self._weights["embed"][torch.tensor(token_ids)] * self.config.embedding_scale
        if "positions" in self._names:
            x = x + self._weights["positions"][: len(token_ids)]
        return tap("embed", WHOLE_MODEL, x)

    @torch.inference_mode()
    def layer(self, index: int, x: Tensor, tap: Tap | None = None) -> Tensor:
        """``[t, m]``: the residual stream after a layer, from the one before it. ``x`` is the whole
        sequence, from position 0."""
        tap = tap or _untouched
        x = x + self._attention(index, x, tap)
        x = x + self._mlp(index, x, tap)
        return tap("residual", index, x)

    @torch.inference_mode()
    def head(self, x: Tensor, tap: Tap | None = None) -> Tensor:
        """``[t, v]``: final norm and LM head on a residual stream of any positions."""
        tap = tap or _untouched
        x = tap("final", WHOLE_MODEL, self._norm("final_norm", x))
        head = self._weights["embed" if self.config.tied_embeddings else "lm_head"]
        return tap("logits", WHOLE_MODEL, _capped(x @ head.T, self.config.logit_softcap))

    def greedy(self, prompt: Sequence[int], max_tokens: int, stop: frozenset[int]) -> list[int]:
        """Likeliest tokens one after the other, a stop token included."""
        output: list[int] = []
        while len(output) < max_tokens and not (output and output[-1] in stop):
            output.append(int(self.logits([*prompt, *output])[-1].argmax()))
        return output

    def _norm(self, name: str, x: Tensor) -> Tensor:
        """RMSNorm, or LayerNorm, over the last dimension."""
        if self.config.norm is Norm.LAYER:
            x = x - x.mean(-1, keepdim=True)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.norm_eps)
        x = x * (self._weights[name] + self.config.norm_offset)
        return x + self._weights[f"{name}_bias"] if self.config.norm is Norm.LAYER else x

    def _linear(self, name: str, x: Tensor) -> Tensor:
        y = x @ self._weights[name].T
        return y + self._weights[f"{name}_bias"] if f"{name}_bias" in self._names else y

    def _mlp(self, index: int, x: Tensor, tap: Tap) -> Tensor:
        prefix = f"layers.{index}."
        x = tap("mlp_in", index, self._norm(prefix + "mlp_norm", x))
        act = tap("act", index, self._activated(index, x, tap))
        out = self._linear(prefix + "down", act)
        if self.config.post_norms:
            out = self._norm(prefix + "mlp_post_norm", out)
        return tap("mlp_out", index, out)

    def _activated(self, index: int, x: Tensor, tap: Tap) -> Tensor:
        prefix = f"layers.{index}."
        if not self.config.mlp.gated:
            return _gelu_tanh(tap("up", index, self._linear(prefix + "up", x)))
        gate = tap("gate", index, self._linear(prefix + "gate", x))
        up = tap("up", index, self._linear(prefix + "up", x))
        if self.config.mlp is Mlp.GEGLU:
            return _gelu_tanh(gate) * up
        return gate * torch.sigmoid(gate) * up

    def _attention(self, index: int, x: Tensor, tap: Tap) -> Tensor:
        prefix = f"layers.{index}."
        x = tap("attn_in", index, self._norm(prefix + "attn_norm", x))

        def heads(name: str) -> Tensor:
            projected = self._linear(prefix + name, x)
            split = projected.view(x.shape[0], -1, self.config.head_dim).transpose(0, 1)
            if self.config.qk_norm and name != "v":
                split = self._norm(f"{prefix}{name}_norm", split)
            return tap(name, index, split)

        q = tap("q_rotated", index, self._rotated(index, heads("q")))
        k = tap("k_rotated", index, self._rotated(index, heads("k")))
        mixed = self._mix(index, q, k, heads("v"), tap)
        out = self._linear(prefix + "o", mixed.transpose(0, 1).reshape(x.shape[0], -1))
        if self.config.post_norms:
            out = self._norm(prefix + "attn_post_norm", out)
        return tap("attn_out", index, out)

    def _mix(self, index: int, q: Tensor, k: Tensor, v: Tensor, tap: Tap) -> Tensor:
        """softmax(q kᵀ · scale, causal) v, the keys and values repeated for their queries."""
        k = k.repeat_interleave(self.config.queries_per_kv_head, 0)
        v = v.repeat_interleave(self.config.queries_per_kv_head, 0)
        scores = q @ k.transpose(1, 2) * self.config.attention_scale
        scores = tap("scores", index, _capped(scores, self.config.attention_softcap))
        num_tokens = scores.shape[-1]
        hidden = torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1)
        window = self.config.window_of(index)
        if window is not None:
            hidden |= torch.ones_like(hidden).tril(-window)
        masked = tap("masked", index, scores.masked_fill(hidden, float("-inf")))
        weights = tap("weights", index, masked.softmax(-1))
        return tap("mixed", index, weights @ v)

    def _rotated(self, index: int, x: Tensor) -> Tensor:
        """x cos + rotate_half(x) sin for ``x [heads, t, d]``."""
        rope = self.config.rope_of(index)
        if rope is None:
            return x
        half = self.config.head_dim // 2
        frequencies = torch.tensor(rope.frequencies(self.config.head_dim))
        angles = torch.outer(torch.arange(x.shape[1]), frequencies).repeat(1, 2)
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return (x * angles.cos() + turned * angles.sin()) * rope.amplitude


def _capped(x: Tensor, cap: float | None) -> Tensor:
    """c · tanh(x / c): nearly x where that is small, never beyond c."""
    return x if cap is None else cap * torch.tanh(x / cap)


def _gelu_tanh(x: Tensor) -> Tensor:
    """GELU in its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415)."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))
