"""DeepSeek sparse attention (DSA): an indexer scores the whole past, the core sees its top k.

The core runs on latents, in the absorbed form of latent attention, for prompts as for decoding.
The indexer's scores are written for the choice of the top k, which reads them.
"""

from __future__ import annotations

from engine.catalog.attention import SparseAttention
from engine.catalog.kv_cache import entry_bytes
from engine.catalog.precision import Number, whole
from engine.simulator.layers.factory import OperatorFactory, Operators
from engine.simulator.layers.latent import LatentShape
from engine.simulator.operators import CoreOperator, LinearOperator, Role, Term, Unit
from engine.simulator.work import CausalWork, EntryWork, Measure


def sparse_attention(factory: OperatorFactory, pattern: SparseAttention, layers: int) -> Operators:
    """The operators of ``layers`` layers of latent attention behind an indexer."""
    shape = LatentShape.of(factory, layers)
    flops, cache, activations = shape.absorbed_terms()
    core = CoreOperator(
        "attention (top k)",
        EntryWork(ratio=1, most=pattern.index_topk),
        flops=(flops,),
        cache=(cache,),
        activations=(activations,),
        live=shape.absorbed_live,
    )
    return (
        *shape.projections(),
        *_index_projections(factory, pattern, layers),
        shape.rotation(pattern.index_n_heads),
        shape.cache_write(),
        index_scores(factory, CausalWork(), pattern.index_n_heads, pattern.index_head_dim, layers),
        shape.absorbed_projections(),
        core,
        shape.output_projection(),
    )


def _index_projections(
    factory: OperatorFactory, pattern: SparseAttention, layers: int
) -> tuple[LinearOperator, ...]:
    """The indexer's queries from the query's latent; its key (LayerNorm) and a weight a head."""
    mla = factory.model.mla
    if mla is None:
        raise AssertionError("sparse attention is defined on latent attention only")
    heads, size = pattern.index_n_heads, pattern.index_head_dim
    query, key = "indexer query projection", "indexer key and weight projection"
    return (
        factory.matmul(query, mla.q_lora_rank, heads * size, layers, replicated=True),
        factory.matmul(key, factory.width, size + heads, layers, replicated=True),
        factory.elementwise("indexer key norm", 2 * size, layers, parameters=2 * size),
    )


def index_scores(
    factory: OperatorFactory, measure: Measure, heads: int, size: int, layers: int
) -> CoreOperator:
    """Every query against every key of the indexer: 2·heads·size FLOPs a pair.

    Keys are read once for all heads; a score a pair is written, and read by the choice.
    """
    key: Number = whole(entry_bytes(factory.model, factory.formats.kv.bits).index)
    scores = factory.act(2 * layers)
    return CoreOperator(
        "indexer scores",
        measure,
        flops=(
            Term(
                Unit.PAIRS,
                2 * heads * size * layers,
                f"2 × {heads} heads × {size} × {layers} layers",
            ),
        ),
        cache=(Term(Unit.READS, whole(key * layers), f"{key:,} B × {layers} layers"),),
        activations=(
            Term(Unit.PAIRS, scores, f"{scores:,} B of scores written and read"),
            factory.queries_and_outputs(heads * (size + 1), layers),
        ),
        role=Role.INDEXER,
        replicated=True,
    )
