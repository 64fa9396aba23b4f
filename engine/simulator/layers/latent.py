"""Multi-head latent attention (MLA): one latent and one rotated key a token serve all heads.

A sequence that decodes leaves its past compressed: queries are taken into the latent space and
outputs back out of it ("absorbed"), and the core reads each latent once for all heads. A chunk of
a prompt expands its whole context, the cached prefix too, into keys and values of each head.

Legend: d hidden size, H heads, q and c ranks of the query's and the cache's latent, r rotated
size, n size of the other part of a key, v size of a value, P cached, S new positions.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.catalog.attention import SparseAttention
from engine.catalog.kv_cache import entry_bytes
from engine.catalog.parts import MlaSpec
from engine.catalog.precision import Number, whole
from engine.simulator.layers.factory import OperatorFactory, Operators
from engine.simulator.operators import CoreOperator, LinearOperator, Role, Term, Unit
from engine.simulator.work import LatentWork


def latent_attention(factory: OperatorFactory, layers: int) -> Operators:
    """The operators of ``layers`` layers whose queries see all of their past."""
    shape = LatentShape.of(factory, layers)
    return (
        *shape.projections(),
        shape.rotation(),
        shape.cache_write(),
        shape.absorbed_projections_of_decodes(),
        shape.absorbed_core_of_decodes(),
        shape.expansion(),
        shape.expanded_core(),
        shape.output_projection(),
    )


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Sizes of the latent attention of ``layers`` layers, on one device."""

    factory: OperatorFactory
    mla: MlaSpec
    heads: Number
    layers: int

    @classmethod
    def of(cls, factory: OperatorFactory, layers: int) -> LatentShape:
        mla = factory.model.mla
        if mla is None:
            raise AssertionError("only models with a latent come here")
        return cls(factory, mla, factory.share(factory.model.num_attention_heads), layers)

    @property
    def query_size(self) -> Number:
        return self.heads * (self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim)

    @property
    def value_size(self) -> Number:
        return self.heads * self.mla.v_head_dim

    @property
    def expanded_size(self) -> Number:
        """Numbers of one position's keys and values, the shared rotated key not among them."""
        return self.heads * (self.mla.qk_nope_head_dim + self.mla.v_head_dim)

    @property
    def _latent_entry(self) -> Number:
        return whole(entry_bytes(self.factory.model, self.factory.formats.kv.bits).main)

    def projections(self) -> tuple[LinearOperator, ...]:
        """Down to the latents, which every device needs whole, and up to its heads' queries."""
        factory, mla, layers = self.factory, self.mla, self.layers
        width, rank = factory.width, mla.q_lora_rank
        if rank:
            query = (
                factory.matmul("query down-projection", width, rank, layers, replicated=True),
                factory.norm("query latent norm", rank, layers),
                factory.matmul("query up-projection", rank, self.query_size, layers),
            )
        else:
            query = (factory.matmul("query projection", width, self.query_size, layers),)
        down = "key-value down-projection"
        return (
            *query,
            factory.matmul(down, width, mla.cached_elements, layers, replicated=True),
            factory.norm("key-value latent norm", mla.kv_lora_rank, layers),
        )

    def rotation(self, index_heads: int = 0) -> LinearOperator:
        """Queries of all heads and one key; with an indexer, its queries and its key too."""
        rope = self.mla.qk_rope_head_dim
        heads = self.heads + 1 + (index_heads + 1 if index_heads else 0)
        return self.factory.elementwise("rotary embedding", 2 * heads * rope, self.layers)

    def cache_write(self) -> LinearOperator:
        """A token's latent and rotated key, and the indexer's key where there is one."""
        model, pattern = self.factory.model, self.factory.model.attention
        index = pattern.index_head_dim if isinstance(pattern, SparseAttention) else 0
        entry = whole(entry_bytes(model, self.factory.formats.kv.bits).total)
        return self.factory.cache_write(self.mla.cached_elements + index, entry, self.layers)

    def absorbed_projections(self) -> LinearOperator:
        """For every token: queries into the latent space and outputs out of it, H·c(n+v)."""
        factory, latent = self.factory, self.mla.kv_lora_rank
        size = self.expanded_size
        moved = size + 2 * self.heads * latent
        bits = factory.formats.stored_activations.bits
        return LinearOperator(
            "absorbed projections",
            flops=2 * latent * size * self.layers,
            weight_bytes=factory.weights(latent * size * self.layers),
            activation_bytes=factory.act(moved * self.layers),
            flops_text=f"2 × {latent:,} × {size:,} × {self.layers} layers",
            bytes_text=f"({size:,} + 2 × {self.heads:,} × {latent:,}) × {bits / 8:g} B × "
            f"{self.layers} layers",
            live=moved,
        )

    def absorbed_projections_of_decodes(self) -> CoreOperator:
        """The same for the tokens of sequences that decode."""
        operator = self.absorbed_projections()
        return CoreOperator(
            operator.name,
            LatentWork(absorbed=True),
            flops=(Term(Unit.TOKENS, operator.flops, operator.flops_text),),
            activations=(Term(Unit.TOKENS, operator.activation_bytes, operator.bytes_text),),
            weight_bytes=operator.weight_bytes,
            role=Role.PRODUCT,
            live=operator.live,
        )

    def absorbed_core_of_decodes(self) -> CoreOperator:
        """2·H(2c+r) FLOPs a pair; a latent is read once for all heads."""
        flops, cache, activations = self.absorbed_terms()
        return CoreOperator(
            "attention (decode)",
            LatentWork(absorbed=True),
            flops=(flops,),
            cache=(cache,),
            activations=(activations,),
            live=self.absorbed_live,
        )

    @property
    def absorbed_live(self) -> Number:
        """Queries and outputs of one token in the latent space."""
        return self.heads * (2 * self.mla.kv_lora_rank + self.mla.qk_rope_head_dim)

    def absorbed_terms(self) -> tuple[Term, Term, Term]:
        """FLOPs a pair, bytes a latent read, and bytes of queries and outputs a token."""
        mla, layers = self.mla, self.layers
        latent, rope = mla.kv_lora_rank, mla.qk_rope_head_dim
        each = whole(self._latent_entry * layers)
        return (
            Term(
                Unit.PAIRS,
                2 * self.heads * (2 * latent + rope) * layers,
                f"2 × {self.heads:,} heads × (2 × {latent} + {rope}) × {layers} layers",
            ),
            Term(Unit.READS, each, f"{self._latent_entry:,} B × {layers} layers"),
            self.factory.queries_and_outputs(self.absorbed_live, layers),
        )

    def expansion(self) -> CoreOperator:
        """Keys and values of the whole context of a chunk: 2·c·H(n+v) a position."""
        factory, latent, layers = self.factory, self.mla.kv_lora_rank, self.layers
        size = self.expanded_size
        read = whole(self._latent_entry * layers)
        written = factory.act(size * layers)
        text = f"2 × {latent:,} × {size:,} × {layers} layers"
        return CoreOperator(
            "key-value expansion",
            LatentWork(absorbed=False),
            flops=(Term(Unit.READS, 2 * latent * size * layers, text),),
            cache=(Term(Unit.READS, read, f"{self._latent_entry:,} B × {layers} layers"),),
            activations=(Term(Unit.READS, written, f"{written:,} B written"),),
            weight_bytes=factory.weights(latent * size * layers),
            weights_elsewhere=True,
            role=Role.PRODUCT,
            live=self.mla.cached_elements + size,
        )

    def expanded_core(self) -> CoreOperator:
        """2·H(n+r+v) FLOPs a pair over the expanded keys and values."""
        mla, layers = self.mla, self.layers
        rope = mla.qk_rope_head_dim
        size = mla.qk_nope_head_dim + rope + mla.v_head_dim
        read = self.factory.act((self.expanded_size + rope) * layers)
        return CoreOperator(
            "attention (prefill)",
            LatentWork(absorbed=False),
            flops=(
                Term(
                    Unit.PAIRS,
                    2 * self.heads * size * layers,
                    f"2 × {self.heads:,} heads × {size} × {layers} layers",
                ),
            ),
            activations=(
                Term(Unit.READS, read, f"{read:,} B of expanded keys and values"),
                self.factory.queries_and_outputs(self.query_size + self.value_size, layers),
            ),
            live=self.query_size + self.value_size + self.expanded_size + rope,
        )

    def output_projection(self) -> LinearOperator:
        factory = self.factory
        return factory.matmul("output projection", self.value_size, factory.width, self.layers)
