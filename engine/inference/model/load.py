"""From a checkpoint's tensors to a transformer in one dtype on one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from engine.catalog.parts import Norm as NormKind
from engine.inference.model.attention import AttentionSpec
from engine.inference.model.config import ModelConfig
from engine.inference.model.linear import Embedding, Linear, PlainEmbedding, make_linear
from engine.inference.model.norm import LayerNorm, Norm, RMSNorm
from engine.inference.model.rope import RotaryTable, halves_to_pairs
from engine.inference.model.rope_frequencies import Rope
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
    before_layer: Callable[[int], None] = lambda index: None,
) -> Transformer:
    """Convert, fuse, reorder and pack all weights; one float32 tensor at a time is in memory.

    ``max_positions``: how many positions a sequence can have here, because the KV cache holds no
    more; the model's whole context if None. ``matrices``: quantised ones that take the place of
    the checkpoint's, by name; ``dtype`` is then that of the activations and of what is left.
    ``before_layer`` is called with each layer's number before it is loaded; what it raises ends
    the loading.
    """
    config = checkpoint.config
    context = min(config.max_context, max_positions or config.max_context)
    ropes = _ropes(config)
    with torch.inference_mode():
        loader = _Loader(checkpoint, dtype, device, matrices or {})

        def layer(index: int) -> Layer:
            before_layer(index)
            return loader.layer(index, ropes)

        embed, head = loader.embed_and_head()
        weights = Weights(
            embed=embed,
            layers=tuple(map(layer, range(config.num_layers))),
            final_norm=loader.norm("final_norm"),
            head=head,
            positions_pm=loader.positions(context),
        )
        rotary = tuple(RotaryTable(rope, config.head_dim, context, device) for rope in ropes)
    return Transformer(config, weights, rotary, dtype, context)


def _ropes(config: ModelConfig) -> tuple[Rope, ...]:
    """The rotary embeddings of all layers, each once."""
    of_layers = map(config.rope_of, range(config.num_layers))
    return tuple(dict.fromkeys(rope for rope in of_layers if rope is not None))


class _Loader:
    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        matrices: Mapping[str, QuantizedTensor],
    ) -> None:
        self._checkpoint = checkpoint
        self._names = frozenset(checkpoint.names)
        self._config: ModelConfig = checkpoint.config
        self._dtype = dtype
        self._device = device
        self._matrices = matrices

    def float32(self, name: str) -> Tensor:
        """A tensor of the checkpoint; what is turned has the rows of its heads in pairs."""
        tensor = torch.from_numpy(self._checkpoint.tensor(name))
        return halves_to_pairs(tensor, self._config.head_dim) if self._turned(name) else tensor

    def _turned(self, name: str) -> bool:
        part = name.rpartition(".")[2].removesuffix("_bias").removesuffix("_norm")
        return part in ("q", "k") and self._config.rope_theta is not None

    def matrix(self, name: str) -> Tensor:
        return self.float32(name).to(dtype=self._dtype, device=self._device)

    def linear(self, *names: str) -> Linear:
        """One layer that gives the outputs of several matrices side by side."""
        bias = None
        if f"{names[0]}_bias" in self._names:
            bias = torch.cat([self.matrix(f"{name}_bias") for name in names])
        if names[0] in self._matrices:
            return QuantizedLinear(self._packed(names), self._dtype, bias)
        return make_linear(torch.cat([self.matrix(name) for name in names]), bias)

    def embed_and_head(self) -> tuple[Embedding, Linear]:
        tied = self._config.tied_embeddings
        if tied and "embed" in self._matrices:
            packed = self._packed(["embed"])
            return QuantizedEmbedding(packed, self._dtype), QuantizedLinear(packed, self._dtype)
        embed = self.matrix("embed")
        return PlainEmbedding(embed), make_linear(embed) if tied else self.linear("lm_head")

    def positions(self, context: int) -> Tensor | None:
        """Learned positions, which are added to a float32 residual stream."""
        if "positions" not in self._names:
            return None
        return self.float32("positions")[:context].to(self._device)

    def _packed(self, names: Sequence[str]) -> PackedTensor:
        tensors: list[QuantizedTensor] = []
        for name in names:
            tensor = self._matrices[name]
            if self._turned(name):
                rows = torch.arange(tensor.shape[0])
                tensor = select_rows(tensor, halves_to_pairs(rows, self._config.head_dim))
            tensors.append(tensor)
        return pack(join_rows(tensors)).to(self._device)

    def norm(self, name: str, dtype: torch.dtype | None = None) -> Norm:
        dtype, eps = dtype or self._dtype, self._config.norm_eps
        if self._config.norm is NormKind.RMS:
            return RMSNorm(self._norm_weight(name), eps, dtype)
        bias = self.float32(f"{name}_bias").to(self._device)
        return LayerNorm(self._norm_weight(name), bias, eps, dtype)

    def _norm_weight(self, name: str) -> Tensor:
        return (self.float32(name) + self._config.norm_offset).to(self._device)

    def layer(self, index: int, ropes: Sequence[Rope]) -> Layer:
        config, prefix = self._config, f"layers.{index}."
        rope = config.rope_of(index)
        gate = (prefix + "gate",) if config.mlp.gated else ()
        return Layer(
            attn_norm=self.norm(prefix + "attn_norm"),
            qkv=self.linear(prefix + "q", prefix + "k", prefix + "v"),
            o=self.linear(prefix + "o"),
            mlp_norm=self.norm(prefix + "mlp_norm"),
            gate_up=self.linear(*gate, prefix + "up"),
            down=self.linear(prefix + "down"),
            attention=AttentionSpec(
                config.attention_scale, config.attention_softcap, config.window_of(index)
            ),
            rotary=None if rope is None else ropes.index(rope),
            qk_norm=self._qk_norm(prefix) if config.qk_norm else None,
            attn_post_norm=self._post_norm(prefix + "attn_post_norm"),
            mlp_post_norm=self._post_norm(prefix + "mlp_post_norm"),
        )

    def _qk_norm(self, prefix: str) -> RMSNorm:
        """One norm for all query and key heads of a layer, which lie side by side."""
        config = self._config
        q, k = self._norm_weight(prefix + "q_norm"), self._norm_weight(prefix + "k_norm")
        heads = (q.expand(config.num_attention_heads, -1), k.expand(config.num_kv_heads, -1))
        return RMSNorm(torch.cat(heads), config.norm_eps, torch.float32)

    def _post_norm(self, name: str) -> Norm | None:
        """What it gives is added to the residual stream, which is float32."""
        return self.norm(name, torch.float32) if self._config.post_norms else None
