"""Who attends to what: the attention patterns of the catalogue's models, one class a kind.

Shapes: d hidden size, H query heads, dh head size. Counts are of one layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class WindowGroup:
    """Layers that see the same past: the last ``window`` positions, or all of them for None."""

    window: int | None
    layers: int


@dataclass(frozen=True, slots=True)
class GlobalAttention:
    """Every layer sees every earlier position."""

    kind: ClassVar[str] = "global"

    def window_groups(self, num_layers: int) -> tuple[WindowGroup, ...]:
        return (WindowGroup(None, num_layers),)


@dataclass(frozen=True, slots=True)
class SlidingAttention:
    """Every layer sees the last ``window`` positions, the current one included."""

    kind: ClassVar[str] = "sliding"
    window: int

    def window_groups(self, num_layers: int) -> tuple[WindowGroup, ...]:
        return (WindowGroup(self.window, num_layers),)


@dataclass(frozen=True, slots=True)
class InterleavedAttention:
    """Windowed layers, with every ``global_every``-th layer (counted from 1) global."""

    kind: ClassVar[str] = "interleaved"
    window: int
    global_every: int

    def window_groups(self, num_layers: int) -> tuple[WindowGroup, ...]:
        num_global = num_layers // self.global_every
        groups = (WindowGroup(None, num_global), WindowGroup(self.window, num_layers - num_global))
        return tuple(group for group in groups if group.layers)


@dataclass(frozen=True, slots=True)
class SparseAttention:
    """DeepSeek sparse attention: an indexer picks the ``index_topk`` positions to attend to."""

    kind: ClassVar[str] = "dsa"
    index_n_heads: int
    index_head_dim: int
    index_topk: int

    def indexer_parameters(self, hidden_size: int, q_lora_rank: int) -> int:
        """Query up-projection, one key with its norm (weight and bias), a weight a head."""
        query = q_lora_rank * self.index_n_heads * self.index_head_dim
        projections = hidden_size * (self.index_head_dim + self.index_n_heads)
        return query + projections + 2 * self.index_head_dim


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """DeepSeek-V4: a window in every layer, and beyond it compressed entries, K and V in one.

    ``compress_ratios`` gives each layer's tokens an entry: ``csa_ratio`` layers pick entries with
    an indexer, ``hca_ratio`` layers attend to all of theirs, 0 means the window alone.
    """

    kind: ClassVar[str] = "csa_hca"
    window: int
    csa_ratio: int
    hca_ratio: int
    compress_ratios: tuple[int, ...]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    qk_rope_head_dim: int

    @property
    def csa_layers(self) -> int:
        return self.compress_ratios.count(self.csa_ratio)

    @property
    def hca_layers(self) -> int:
        return self.compress_ratios.count(self.hca_ratio)

    def layer_parameters(self, layer: int, hidden_size: int, heads: int, head_dim: int) -> int:
        """Low-rank queries, one shared key-value, grouped low-rank output, sinks, compressor."""
        inner = heads * head_dim
        query = self.q_lora_rank * (hidden_size + 1 + inner)
        key_value = (hidden_size + 1) * head_dim
        output = self.o_lora_rank * (inner + self.o_groups * hidden_size)
        return query + key_value + output + heads + self._compressor(layer, hidden_size, head_dim)

    def _compressor(self, layer: int, hidden_size: int, head_dim: int) -> int:
        """Entry and gate projections, a bias for each position of a group, a norm."""
        ratio = self.compress_ratios[layer]
        if ratio == 0:
            return 0
        if ratio == self.hca_ratio:
            return (2 * hidden_size + ratio + 1) * head_dim
        # CSA groups overlap, so their projections are two entries wide; the indexer has its own.
        main = (2 * hidden_size + ratio) * 2 * head_dim + head_dim
        size = self.index_head_dim
        indexer = (2 * hidden_size + ratio) * 2 * size + size
        queries = self.index_n_heads * (self.q_lora_rank * size + hidden_size)
        return main + indexer + queries


@dataclass(frozen=True, slots=True)
class HybridLinearAttention:
    """Gated delta nets with full attention in every ``full_attention_interval``-th layer."""

    kind: ClassVar[str] = "hybrid_linear"
    full_attention_interval: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    conv_kernel: int

    def is_full(self, layer: int) -> bool:
        return (layer + 1) % self.full_attention_interval == 0

    @property
    def _key_size(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def _value_size(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def _conv_channels(self) -> int:
        return 2 * self._key_size + self._value_size

    def layer_parameters(self, hidden_size: int) -> int:
        """q, k, v and output gate; two gates a value head; convolution; decay, bias, norm; out."""
        heads = self.linear_num_value_heads
        projections = hidden_size * (self._conv_channels + self._value_size + 2 * heads)
        convolution = self._conv_channels * self.conv_kernel
        output = self._value_size * hidden_size
        return projections + convolution + output + 2 * heads + self.linear_value_head_dim

    @property
    def layer_state_bytes(self) -> int:
        """State of one sequence: fp32 matrices and the convolution's last bf16 inputs."""
        matrices = self.linear_num_value_heads * self.linear_key_head_dim
        recurrent = matrices * self.linear_value_head_dim * 4
        return recurrent + self._conv_channels * (self.conv_kernel - 1) * 2


@dataclass(frozen=True, slots=True)
class HybridMamba2Attention:
    """Layers by letter of ``layer_pattern``: M Mamba-2, * attention, E experts alone."""

    kind: ClassVar[str] = "hybrid_mamba2"
    layer_pattern: str
    mamba_num_heads: int
    mamba_head_dim: int
    ssm_state_size: int
    n_groups: int
    conv_kernel: int

    @property
    def _inner_size(self) -> int:
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def _conv_channels(self) -> int:
        return self._inner_size + 2 * self.n_groups * self.ssm_state_size

    def layer_parameters(self, hidden_size: int) -> int:
        """Input projection with gate and step sizes, convolution, decay, norm and output."""
        heads = self.mamba_num_heads
        projection = hidden_size * (self._inner_size + self._conv_channels + heads)
        convolution = self._conv_channels * (self.conv_kernel + 1)
        return projection + convolution + 3 * heads + self._inner_size * (1 + hidden_size)

    @property
    def layer_state_bytes(self) -> int:
        """State of one sequence: fp32 matrices and the convolution's last bf16 inputs."""
        recurrent = self._inner_size * self.ssm_state_size * 4
        return recurrent + self._conv_channels * (self.conv_kernel - 1) * 2


AttentionPattern = (
    GlobalAttention
    | SlidingAttention
    | InterleavedAttention
    | SparseAttention
    | CompressedAttention
    | HybridLinearAttention
    | HybridMamba2Attention
)

WindowedAttention = (GlobalAttention, SlidingAttention, InterleavedAttention)
"""The patterns that keep one K and V a token and layer, whole or within a window."""
