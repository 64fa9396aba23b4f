"""From a checkpoint's tensors to a transformer in one dtype on one device."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.inference.model.config import ModelConfig
from engine.inference.model.linear import make_linear
from engine.inference.model.norm import RMSNorm
from engine.inference.model.rope import RotaryTable, halves_to_pairs
from engine.inference.model.transformer import Layer, Transformer, Weights
from engine.inference.weights.checkpoint import Checkpoint


def load_transformer(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: torch.device,
    *,
    max_positions: int | None = None,
) -> Transformer:
    """Convert, fuse, reorder and pack all weights; one float32 tensor at a time is in memory.

    ``max_positions``: how many positions a sequence can have here, because the KV cache holds no
    more; the model's whole context if None.
    """
    config = checkpoint.config
    with torch.inference_mode():
        loader = _Loader(checkpoint, dtype, device)
        embed = loader.matrix("embed")
        weights = Weights(
            embed_vm=embed,
            layers=tuple(loader.layer(index) for index in range(config.num_layers)),
            final_norm=loader.norm("final_norm"),
            head=make_linear(embed if config.tied_embeddings else loader.matrix("lm_head")),
        )
        context = min(config.max_context, max_positions or config.max_context)
        rotary = RotaryTable(config.head_dim, config.rope_theta, context, device)
    return Transformer(config, weights, rotary, dtype)


class _Loader:
    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
        self._checkpoint = checkpoint
        self._config: ModelConfig = checkpoint.config
        self._dtype = dtype
        self._device = device

    def matrix(self, name: str) -> Tensor:
        tensor = torch.from_numpy(self._checkpoint.tensor(name))
        return tensor.to(dtype=self._dtype, device=self._device)

    def norm(self, name: str) -> RMSNorm:
        weight = torch.from_numpy(self._checkpoint.tensor(name)).to(self._device)
        return RMSNorm(weight, self._config.norm_eps, self._dtype)

    def layer(self, index: int) -> Layer:
        def part(name: str) -> Tensor:
            return self.matrix(f"layers.{index}.{name}")

        dim = self._config.head_dim
        q, k = halves_to_pairs(part("q"), dim), halves_to_pairs(part("k"), dim)
        return Layer(
            attn_norm=self.norm(f"layers.{index}.attn_norm"),
            qkv=make_linear(torch.cat((q, k, part("v")))),
            o=make_linear(part("o")),
            mlp_norm=self.norm(f"layers.{index}.mlp_norm"),
            gate_up=make_linear(torch.cat((part("gate"), part("up")))),
            down=make_linear(part("down")),
        )
