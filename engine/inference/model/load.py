"""From a checkpoint's tensors to a transformer in one dtype on one device."""

from __future__ import annotations

import logging
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
from engine.inference.native.linear import NativeEmbedding, NativeLinear
from engine.inference.native.matrix import CannotPackError, MatrixPacker
from engine.inference.quantization.linear import QuantizedEmbedding, QuantizedLinear
from engine.inference.quantization.packed import join_rows, pack, select_rows
from engine.inference.quantization.tensor import QuantizedTensor
from engine.inference.weights.checkpoint import Checkpoint

log = logging.getLogger(__name__)


def load_transformer(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: torch.device,
    *,
    max_positions: int | None = None,
    matrices: Mapping[str, QuantizedTensor] | None = None,
    packer: MatrixPacker | None = None,
    before_layer: Callable[[int], None] = lambda index: None,
) -> Transformer:
    """Convert, fuse, reorder and pack all weights; one float32 tensor at a time is in memory.

    ``max_positions``: how many positions a sequence can have here, because the KV cache holds no
    more; the model's whole context if None. ``matrices``: quantised ones that take the place of
    the checkpoint's, by name; ``dtype`` is then that of the activations and of what is left.
    ``packer``: packs matrices for native steps instead of for torch, which then runs slowly.
    ``before_layer`` is called with each layer's number before it is loaded; what it raises ends
    the loading.
    """
    config = checkpoint.config
    context = min(config.max_context, max_positions or config.max_context)
    ropes = _ropes(config)
    with torch.inference_mode():
        loader = _Loader(checkpoint, dtype, device, matrices or {}, packer)

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
        packer: MatrixPacker | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._names = frozenset(checkpoint.names)
        self._config: ModelConfig = checkpoint.config
        self._dtype = dtype
        self._device = device
        self._matrices = matrices
        self._packer = packer

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
            return self._quantized(self._joined(names), bias)
        return self._floats(torch.cat([self.matrix(name) for name in names]), bias)

    def _quantized(self, tensor: QuantizedTensor, bias_o: Tensor | None = None) -> Linear:
        if self._packer is not None:
            try:
                matrix = self._packer.pack_quantized(tensor, bias_o)
                return NativeLinear(matrix, self._dtype, bias_o)
            except CannotPackError as error:
                log.info("a matrix stays in torch's form: %s", error)
        return QuantizedLinear(pack(tensor).to(self._device), self._dtype, bias_o)

    def _floats(self, weight_oi: Tensor, bias_o: Tensor | None = None) -> Linear:
        if self._packer is None:
            return make_linear(weight_oi, bias_o)
        bfloat16 = self._dtype is torch.bfloat16
        matrix = self._packer.pack_floats(weight_oi, bias_o, bfloat16=bfloat16)
        return NativeLinear(matrix, self._dtype, bias_o)

    def embed_and_head(self) -> tuple[Embedding, Linear]:
        tied = self._config.tied_embeddings
        if not tied:
            return PlainEmbedding(self.matrix("embed")), self.linear("lm_head")
        if self._packer is None and "embed" not in self._matrices:
            # Without a copy, where the layer reads a plain tensor too.
            embed = self.matrix("embed")
            return PlainEmbedding(embed), make_linear(embed)
        head = self.linear("embed")
        if isinstance(head, NativeLinear):
            return NativeEmbedding(head.matrix, self._dtype), head
        if isinstance(head, QuantizedLinear):
            return QuantizedEmbedding(head.packed, self._dtype), head
        raise AssertionError(f"a head as {type(head).__name__}")

    def positions(self, context: int) -> Tensor | None:
        """Learned positions, which are added to a float32 residual stream."""
        if "positions" not in self._names:
            return None
        return self.float32("positions")[:context].to(self._device)

    def _joined(self, names: Sequence[str]) -> QuantizedTensor:
        tensors: list[QuantizedTensor] = []
        for name in names:
            tensor = self._matrices[name]
            if self._turned(name):
                rows = torch.arange(tensor.shape[0])
                tensor = select_rows(tensor, halves_to_pairs(rows, self._config.head_dim))
            tensors.append(tensor)
        return join_rows(tensors)

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
