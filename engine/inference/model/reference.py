"""The slow path that every fast one is compared with: float32, no cache, one sequence at a time.

Written straight from the formulas and sharing no code with the fast path: textbook rotation of
halves, keys and values repeated for their query heads, plain matrix products, everything computed
again for every call. It is also where one looks inside: a *tap* sees, and may replace, every
tensor on the way, so that the fast path needs no hooks.

Shapes: t tokens · m model width · H query heads · h KV heads · d head_dim · i width of the MLP ·
v vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

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
    "q": "[H, t, d] queries, not rotated",
    "k": "[h, t, d] keys, not rotated",
    "q_rotated": "[H, t, d] queries as they are compared",
    "k_rotated": "[h, t, d] keys as they are compared",
    "v": "[h, t, d] values",
    "scores": "[H, t, t] scaled q · k of every pair, later positions included",
    "masked": "[H, t, t] the same with -inf where a query may not look",
    "weights": "[H, t, t] softmax of the masked scores",
    "mixed": "[H, t, d] values mixed by the weights",
    "attn_out": "[t, m] what the attention adds to the residual stream",
    "mlp_in": "[t, m] normed input of the MLP",
    "gate": "[t, i] before its activation function",
    "up": "[t, i] what the gate is multiplied with",
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
        return tap("embed", WHOLE_MODEL, self._weights["embed"][torch.tensor(token_ids)])

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
        return tap("logits", WHOLE_MODEL, x @ head.T)

    def greedy(self, prompt: Sequence[int], max_tokens: int, stop: frozenset[int]) -> list[int]:
        """Likeliest tokens one after the other, a stop token included."""
        output: list[int] = []
        while len(output) < max_tokens and not (output and output[-1] in stop):
            output.append(int(self.logits([*prompt, *output])[-1].argmax()))
        return output

    def _norm(self, name: str, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.norm_eps)
        return x * scale * self._weights[name]

    def _mlp(self, index: int, x: Tensor, tap: Tap) -> Tensor:
        prefix = f"layers.{index}."
        x = tap("mlp_in", index, self._norm(prefix + "mlp_norm", x))
        gate = tap("gate", index, x @ self._weights[prefix + "gate"].T)
        up = tap("up", index, x @ self._weights[prefix + "up"].T)
        act = tap("act", index, gate * torch.sigmoid(gate) * up)
        return tap("mlp_out", index, act @ self._weights[prefix + "down"].T)

    def _attention(self, index: int, x: Tensor, tap: Tap) -> Tensor:
        prefix = f"layers.{index}."
        x = tap("attn_in", index, self._norm(prefix + "attn_norm", x))

        def heads(name: str) -> Tensor:
            projected = x @ self._weights[prefix + name].T
            split = projected.view(x.shape[0], -1, self.config.head_dim).transpose(0, 1)
            return tap(name, index, split)

        q = tap("q_rotated", index, self._rotated(heads("q")))
        k = tap("k_rotated", index, self._rotated(heads("k")))
        mixed = self._mix(index, q, k, heads("v"), tap)
        out = mixed.transpose(0, 1).reshape(x.shape[0], -1) @ self._weights[prefix + "o"].T
        return tap("attn_out", index, out)

    def _mix(self, index: int, q: Tensor, k: Tensor, v: Tensor, tap: Tap) -> Tensor:
        """softmax(q kᵀ / sqrt(d), causal) v, the keys and values repeated for their queries."""
        k = k.repeat_interleave(self.config.queries_per_kv_head, 0)
        v = v.repeat_interleave(self.config.queries_per_kv_head, 0)
        scores = tap("scores", index, q @ k.transpose(1, 2) / self.config.head_dim**0.5)
        future = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        masked = tap("masked", index, scores.masked_fill(future, float("-inf")))
        weights = tap("weights", index, masked.softmax(-1))
        return tap("mixed", index, weights @ v)

    def _rotated(self, x: Tensor) -> Tensor:
        """x cos + rotate_half(x) sin for ``x [heads, t, d]``."""
        half = self.config.head_dim // 2
        frequencies = self.config.rope_theta ** (-torch.arange(half) / half)
        angles = torch.outer(torch.arange(x.shape[1]), frequencies).repeat(1, 2)
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * angles.cos() + turned * angles.sin()
