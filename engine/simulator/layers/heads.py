"""Attention with heads of its own keys and values: MHA, GQA, MQA; whole or within a window.

Legend: d hidden size, H query heads, Hkv key-value heads, dh head size (H·dh need not be d).
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.catalog.attention import WindowGroup
from engine.catalog.kv_cache import entry_bytes
from engine.catalog.parts import QkNorm
from engine.catalog.precision import Number, whole
from engine.simulator.layers.factory import OperatorFactory, Operators
from engine.simulator.operators import CoreOperator, LinearOperator, Term, Unit
from engine.simulator.work import CausalWork


def heads_attention(factory: OperatorFactory, windows: Sequence[WindowGroup]) -> Operators:
    """Projection, rotation, cache write, one core a window, and the output projection.

    With ``attn_output_gate`` the query projection is twice as wide and its second half gates the
    heads' outputs; with ``attn_sinks`` each head has one more score without a key.
    """
    model = factory.model
    extras = model.extras
    layers = sum(group.layers for group in windows)
    heads = factory.share(model.num_attention_heads) * model.head_dim
    kv = factory.group.kv_heads(model.num_kv_heads) * model.head_dim
    gate = heads if extras.attn_output_gate else 0
    biased = heads + 2 * kv if model.qkv_bias or extras.all_biases else 0
    operators: list[LinearOperator | CoreOperator] = [
        factory.matmul("qkv projection", factory.width, heads + gate + 2 * kv, layers, bias=biased)
    ]
    if extras.qk_norm is not QkNorm.NONE:
        shared = extras.qk_norm is QkNorm.PER_HEAD
        size = 2 * model.head_dim if shared else model.query_size + model.kv_size
        operators.append(
            factory.elementwise("query and key norm", 2 * (heads + kv), layers, parameters=size)
        )
    if not extras.learned_positions:
        operators.append(factory.elementwise("rotary embedding", 2 * (heads + kv), layers))
    operators.append(factory.cache_write(2 * kv, factory.formats.kv.bytes_for(2 * kv), layers))
    single = len(windows) == 1
    operators.extend(_core(factory, group, heads, kv, gate, single) for group in windows)
    if gate:
        operators.append(factory.elementwise("attention output gate", 3 * heads, layers))
    bias = factory.width if extras.all_biases else 0
    operators.append(factory.matmul("output projection", heads, factory.width, layers, bias=bias))
    return tuple(operators)


def _core(
    factory: OperatorFactory,
    group: WindowGroup,
    heads: Number,
    kv: Number,
    gate: Number,
    single: bool,
) -> CoreOperator:
    """Scores, softmax, weighted values: 4·H·dh FLOPs a pair; K and V read once for all heads."""
    model, layers = factory.model, group.layers
    if single:
        name = "attention"
    else:
        name = "attention (global)" if group.window is None else "attention (windowed)"
    bits = factory.formats.kv.bits
    sinks = factory.share(model.num_attention_heads) if model.extras.attn_sinks else 0
    # One device's part of an entry: the heads that it keeps.
    kept = entry_bytes(model, bits).main * factory.group.kv_heads(model.num_kv_heads)
    each = whole(kept / model.num_kv_heads * layers)
    return CoreOperator(
        name,
        CausalWork(group.window),
        flops=(Term(Unit.PAIRS, 4 * heads * layers, f"4 × {heads:,} × {layers} layers"),),
        cache=(Term(Unit.READS, each, f"2 × {kv:,} × {bits / 8:g} B × {layers} layers"),),
        activations=(factory.queries_and_outputs(2 * heads, layers),),
        weight_bytes=factory.weights(sinks * layers),
        live=2 * heads + gate + 2 * kv,
    )
