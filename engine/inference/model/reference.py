"""The slow path that every fast one is compared with: float32, no cache, one sequence at a time.

Written straight from the formulas and sharing no code with the fast path: textbook rotation of
halves, keys and values repeated for their query heads, plain matrix products, everything computed
again for every call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.inference.model.config import ModelConfig
from engine.inference.weights.checkpoint import Checkpoint


class ReferenceModel:
    """Logits of all positions of one token sequence, by full recomputation on the CPU."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config: ModelConfig = checkpoint.config
        self._weights = {
            name: torch.from_numpy(checkpoint.tensor(name)) for name in checkpoint.names
        }

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int]) -> Tensor:
        """``[t, v]`` in float32: row i scores the token after position i."""
        x = self._weights["embed"][torch.tensor(token_ids)]
        for index in range(self.config.num_layers):
            x = x + self._attention(f"layers.{index}.", x)
            x = x + self._mlp(f"layers.{index}.", x)
        tied = self.config.tied_embeddings
        return self._norm("final_norm", x) @ self._weights["embed" if tied else "lm_head"].T

    def greedy(self, prompt: Sequence[int], max_tokens: int, stop: frozenset[int]) -> list[int]:
        """Likeliest tokens one after the other, a stop token included."""
        output: list[int] = []
        while len(output) < max_tokens and not (output and output[-1] in stop):
            output.append(int(self.logits([*prompt, *output])[-1].argmax()))
        return output

    def _norm(self, name: str, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.norm_eps)
        return x * scale * self._weights[name]

    def _mlp(self, prefix: str, x: Tensor) -> Tensor:
        x = self._norm(prefix + "mlp_norm", x)
        gate = x @ self._weights[prefix + "gate"].T
        up = x @ self._weights[prefix + "up"].T
        return (gate * torch.sigmoid(gate) * up) @ self._weights[prefix + "down"].T

    def _attention(self, prefix: str, x: Tensor) -> Tensor:
        config = self.config
        x = self._norm(prefix + "attn_norm", x)
        num_tokens = x.shape[0]

        def heads(name: str) -> Tensor:
            projected = x @ self._weights[prefix + name].T
            return projected.view(num_tokens, -1, config.head_dim).transpose(0, 1)

        q, k, v = self._rotated(heads("q")), self._rotated(heads("k")), heads("v")
        k = k.repeat_interleave(config.queries_per_kv_head, 0)
        v = v.repeat_interleave(config.queries_per_kv_head, 0)
        scores = q @ k.transpose(1, 2) / config.head_dim**0.5
        future = torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return mixed.transpose(0, 1).reshape(num_tokens, -1) @ self._weights[prefix + "o"].T

    def _rotated(self, x: Tensor) -> Tensor:
        """x cos + rotate_half(x) sin for ``x [heads, t, d]``."""
        half = self.config.head_dim // 2
        frequencies = self.config.rope_theta ** (-torch.arange(half) / half)
        angles = torch.outer(torch.arange(x.shape[1]), frequencies).repeat(1, 2)
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * angles.cos() + turned * angles.sin()
