"""From a checkpoint's tensors to a transformer in one dtype on one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.inference.model.config import ModelConfig
from engine.inference.model.linear import Embedding, Linear, PlainEmbedding, make_linear
from engine.inference.model.norm import RMSNorm
from engine.inference.model.rope import RotaryTable, halves_to_pairs
from engine.inference.model.transformer import Layer, Transformer, Weights
from engine.inference.quantization.linear import QuantizedEmbedding, QuantizedLinear
from engine.inference.quantization.packed import PackedTensor, join_rows, pack, select_rows
from engine.inference.quantization.tensor import QuantizedTensor
from engine.inference.weights.checkpoint import Checkpoint


def load_transformer(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: torch.device,
    *,
    max_positions: int | None = None,
    matrices: Mapping[str, QuantizedTensor] | None = None,
) -> Transformer:
    """Convert, fuse, reorder and pack all weights; one float32 tensor at a time is in memory.

    ``max_positions``: how many positions a sequence can have here, because the KV cache holds no
    more; the model's whole context if None. ``matrices``: quantised ones that take the place of
    the checkpoint's, by name; ``dtype`` is then that of the activations and of what is left.
    """
    config = checkpoint.config
    with torch.inference_mode():
        loader = _Loader(checkpoint, dtype, device, matrices or {})
        embed, head = loader.embed_and_head()
        weights = Weights(
            embed=embed,
            layers=tuple(loader.layer(index) for index in range(config.num_layers)),
            final_norm=loader.norm("final_norm"),
            head=head,
        )
        context = min(config.max_context, max_positions or config.max_context)
        rotary = RotaryTable(config.head_dim, config.rope_theta, context, device)
    return Transformer(config, weights, rotary, dtype)


class _Loader:
    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        matrices: Mapping[str, QuantizedTensor],
    ) -> None:
        self._checkpoint = checkpoint
        self._config: ModelConfig = checkpoint.config
        self._dtype = dtype
        self._device = device
        self._matrices = matrices

    def matrix(self, name: str) -> Tensor:
        tensor = torch.from_numpy(self._checkpoint.tensor(name))
        if name.endswith((".q", ".k")):
            tensor = halves_to_pairs(tensor, self._config.head_dim)
        return tensor.to(dtype=self._dtype, device=self._device)

    def linear(self, *names: str) -> Linear:
        """One layer that gives the outputs of several matrices side by side."""
        if names[0] in self._matrices:
            return QuantizedLinear(self._packed(names), self._dtype)
        return make_linear(torch.cat([self.matrix(name) for name in names]))

    def embed_and_head(self) -> tuple[Embedding, Linear]:
        tied = self._config.tied_embeddings
        if tied and "embed" in self._matrices:
            packed = self._packed(["embed"])
            return QuantizedEmbedding(packed, self._dtype), QuantizedLinear(packed, self._dtype)
        embed = self.matrix("embed")
        return PlainEmbedding(embed), make_linear(embed) if tied else self.linear("lm_head")

    def _packed(self, names: Sequence[str]) -> PackedTensor:
        tensors: list[QuantizedTensor] = []
        for name in names:
            tensor = self._matrices[name]
            if name.endswith((".q", ".k")):
                rows = torch.arange(tensor.shape[0])
                tensor = select_rows(tensor, halves_to_pairs(rows, self._config.head_dim))
            tensors.append(tensor)
        return pack(join_rows(tensors)).to(self._device)

    def norm(self, name: str) -> RMSNorm:
        weight = torch.from_numpy(self._checkpoint.tensor(name)).to(self._device)
        return RMSNorm(weight, self._config.norm_eps, self._dtype)

    def layer(self, index: int) -> Layer:
        prefix = f"layers.{index}."
        return Layer(
            attn_norm=self.norm(prefix + "attn_norm"),
            qkv=self.linear(prefix + "q", prefix + "k", prefix + "v"),
            o=self.linear(prefix + "o"),
            mlp_norm=self.norm(prefix + "mlp_norm"),
            gate_up=self.linear(prefix + "gate", prefix + "up"),
            down=self.linear(prefix + "down"),
        )
