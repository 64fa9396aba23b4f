"""DeepSeek-V4's attention: a window in every layer, and beyond it compressed entries.

Layers of heavy compression (HCA) see all of their entries; layers of compressed sparse attention
(CSA) those that an indexer picks; some layers have the window alone. Key and value are one
vector, shared by all heads, so that a pair takes 4·H·dh FLOPs and an entry is read once.

Legend: d hidden size, H heads, dh head size, q and o ranks of the query's latent and of the
grouped output projection.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.catalog.attention import CompressedAttention
from engine.catalog.kv_cache import entry_bytes
from engine.catalog.precision import Number, whole
from engine.simulator.layers.factory import OperatorFactory, Operators
from engine.simulator.layers.sparse import index_scores
from engine.simulator.operators import CoreOperator, LinearOperator, Term, Unit
from engine.simulator.work import CausalWork, EntryWork, Measure


def compressed_attention(factory: OperatorFactory, pattern: CompressedAttention) -> Operators:
    """The operators of all layers of the model."""
    parts = _Compressed(factory, pattern)
    return (
        *parts.projections(),
        *parts.compressors(),
        parts.rotation(),
        parts.cache_write(),
        *parts.cores(),
        *parts.output_projections(),
    )


@dataclass(frozen=True, slots=True)
class _Compressed:
    factory: OperatorFactory
    pattern: CompressedAttention

    @property
    def _layers(self) -> int:
        return self.factory.model.num_layers

    @property
    def _heads(self) -> Number:
        return self.factory.share(self.factory.model.num_attention_heads)

    @property
    def _inner(self) -> Number:
        return self._heads * self.factory.model.head_dim

    def projections(self) -> tuple[LinearOperator, ...]:
        """Low-rank queries, normed a head without weights; one key that is the value too."""
        factory, layers = self.factory, self._layers
        width, size, rank = factory.width, factory.model.head_dim, self.pattern.q_lora_rank
        return (
            factory.matmul("query down-projection", width, rank, layers, replicated=True),
            factory.norm("query latent norm", rank, layers),
            factory.matmul("query up-projection", rank, self._inner, layers),
            factory.elementwise("query norm", 2 * self._inner, layers),
            factory.matmul("key-value projection", width, size, layers, replicated=True),
            factory.norm("key-value norm", size, layers),
        )

    def compressors(self) -> tuple[LinearOperator, ...]:
        """Entries and gates of every token; CSA's are two wide, as its groups overlap."""
        pattern, size = self.pattern, self.factory.model.head_dim
        index, ranks = pattern.index_head_dim, pattern.q_lora_rank
        heads, csa = pattern.index_n_heads, pattern.csa_layers
        factory, width = self.factory, self.factory.width
        parts: list[LinearOperator] = []
        if csa:
            query, weight = "indexer query projection", "indexer weight projection"
            parts += [
                *self._compressor("CSA compressor", 2 * size, size, pattern.csa_ratio, csa),
                *self._compressor("indexer compressor", 2 * index, index, pattern.csa_ratio, csa),
                factory.matmul(query, ranks, heads * index, csa, replicated=True),
                factory.matmul(weight, width, heads, csa, replicated=True),
            ]
        if pattern.hca_layers:
            ratio, hca = pattern.hca_ratio, pattern.hca_layers
            parts += self._compressor("HCA compressor", size, size, ratio, hca)
        return tuple(parts)

    def _compressor(
        self, name: str, wide: int, size: int, ratio: int, layers: int
    ) -> tuple[LinearOperator, LinearOperator]:
        """Two projections, then a softmax over each group with a bias a position, and a norm."""
        factory = self.factory
        return (
            factory.matmul(f"{name} projection", factory.width, 2 * wide, layers, replicated=True),
            factory.elementwise(
                f"{name} pooling",
                2 * wide + size / ratio,
                layers,
                parameters=ratio * wide + size,
            ),
        )

    def rotation(self) -> LinearOperator:
        """Queries, the key, and the outputs back again; the indexer's queries in CSA layers."""
        rope = self.pattern.qk_rope_head_dim
        index = self.pattern.index_n_heads * self.pattern.csa_layers / self._layers
        elements = whole(2 * (2 * self._heads + 1 + index) * rope)
        return self.factory.elementwise("rotary embedding", elements, self._layers)

    def cache_write(self) -> LinearOperator:
        """A window entry in every layer, and each ratio's part of a compressed entry."""
        factory, pattern = self.factory, self.pattern
        entry = entry_bytes(factory.model, factory.formats.kv.bits)
        csa = pattern.csa_layers * entry.total / pattern.csa_ratio
        hca = pattern.hca_layers * entry.main / pattern.hca_ratio
        written = self._layers * entry.main + csa + hca
        size = factory.model.head_dim
        index = pattern.csa_layers * (size + pattern.index_head_dim) / pattern.csa_ratio
        read = self._layers * size + index + pattern.hca_layers * size / pattern.hca_ratio
        return factory.cache_write(whole(read), whole(written), 1)

    def cores(self) -> tuple[CoreOperator, ...]:
        """One core for each kind of layer, and the indexer of CSA."""
        pattern = self.pattern
        window, csa, hca = pattern.window, pattern.csa_layers, pattern.hca_layers
        alone = self._layers - csa - hca
        cores: list[CoreOperator] = []
        if alone:
            cores.append(self._core("attention (windowed)", CausalWork(window), alone))
        if csa:
            whole_past = EntryWork(pattern.csa_ratio)
            heads, size = pattern.index_n_heads, pattern.index_head_dim
            picked = EntryWork(pattern.csa_ratio, pattern.index_topk, window)
            cores.append(index_scores(self.factory, whole_past, heads, size, csa))
            cores.append(self._core("attention (CSA)", picked, csa))
        if hca:
            all_entries = EntryWork(pattern.hca_ratio, None, window)
            cores.append(self._core("attention (HCA)", all_entries, hca))
        return tuple(cores)

    def _core(self, name: str, measure: Measure, layers: int) -> CoreOperator:
        factory, size = self.factory, self.factory.model.head_dim
        entry = whole(entry_bytes(factory.model, factory.formats.kv.bits).main)
        flops = 4 * self._inner * layers
        text = f"4 × {self._heads:,} heads × {size} × {layers} layers"
        return CoreOperator(
            name,
            measure,
            flops=(Term(Unit.PAIRS, flops, text),),
            cache=(Term(Unit.READS, whole(entry * layers), f"{entry:,} B × {layers} layers"),),
            activations=(factory.queries_and_outputs(2 * self._inner, layers),),
            weight_bytes=factory.weights(self._heads * layers),
            live=2 * self._inner + size,
        )

    def output_projections(self) -> tuple[LinearOperator, ...]:
        """Groups of heads down to a low rank each, and all groups up to the hidden size."""
        factory, pattern = self.factory, self.pattern
        model = factory.model
        groups, rank = factory.share(pattern.o_groups), pattern.o_lora_rank
        inputs = model.query_size // pattern.o_groups
        return (
            factory.grouped_matmul(
                "output down-projection", inputs, rank, self._layers, groups=groups
            ),
            factory.matmul("output up-projection", groups * rank, factory.width, self._layers),
        )
