"""Gated delta nets: linear attention with one matrix of state a value head.

Each token decays the state, corrects what it holds for the key (read, compare, write back), and
reads it with the query: three products of size dk·dv a head. Prompts are counted by the same
recurrence, the least arithmetic; kernels that work in chunks multiply about twice as much there.

Legend: Hk, Hv key and value heads; dk, dv their sizes.
"""

from __future__ import annotations

from engine.catalog.attention import HybridLinearAttention
from engine.simulator.layers.factory import OperatorFactory, Operators
from engine.simulator.layers.recurrent import convolution, recurrence
from engine.simulator.operators import Term, Unit


def delta_net(factory: OperatorFactory, pattern: HybridLinearAttention, layers: int) -> Operators:
    """Projections, convolution, recurrence, gated norm and output projection of those layers."""
    width = factory.width
    dk, dv = pattern.linear_key_head_dim, pattern.linear_value_head_dim
    keys = pattern.linear_num_key_heads * dk
    values = pattern.linear_num_value_heads * dv
    channels = 2 * keys + values
    heads, mine = factory.share(pattern.linear_num_value_heads), factory.share(values)
    inputs = factory.share(channels + values)
    flops = Term(
        Unit.TOKENS,
        6 * heads * dk * dv * layers,
        f"6 × {heads:,} heads × {dk} × {dv} × {layers} layers",
    )
    return (
        factory.matmul("linear attention input projection", width, inputs, layers),
        factory.matmul("linear attention gate projection", width, 2 * heads, layers),
        convolution(factory, channels, pattern.conv_kernel, layers, bias=False),
        recurrence(
            factory,
            "linear attention state",
            pattern.layer_state_bytes,
            layers,
            flops=flops,
            # Queries, keys, values and two gates in; one output out. Decay and bias are weights.
            elements=factory.share(channels) + 2 * heads + mine,
            parameters=2 * heads,
        ),
        factory.elementwise("linear attention gated norm", 3 * mine, layers, parameters=dv),
        factory.matmul("linear attention output projection", mine, width, layers),
    )
