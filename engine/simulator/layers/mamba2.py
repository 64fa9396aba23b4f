"""Mamba-2: a selective state space with one matrix of state a head.

Each token adds its input times B to the decayed state and reads it with C: two products of size
dh·N a head. Prompts are counted by the same recurrence, the least arithmetic; kernels that work in
chunks multiply more there.

Legend: dh head size, N state size, G groups that share B and C.
"""

from __future__ import annotations

from engine.catalog.attention import HybridMamba2Attention
from engine.simulator.layers.factory import OperatorFactory, Operators
from engine.simulator.layers.recurrent import convolution, recurrence
from engine.simulator.operators import Term, Unit


def mamba2(factory: OperatorFactory, pattern: HybridMamba2Attention, layers: int) -> Operators:
    """Projections, convolution, recurrence, gated norm and output projection of those layers."""
    width, state = factory.width, pattern.ssm_state_size
    inner = pattern.mamba_num_heads * pattern.mamba_head_dim
    channels = inner + 2 * pattern.n_groups * state
    heads, mine = factory.share(pattern.mamba_num_heads), factory.share(inner)
    flops = Term(
        Unit.TOKENS, 4 * mine * state * layers, f"4 × {mine:,} × {state} × {layers} layers"
    )
    # The gate, what goes through the convolution, and a step size a head.
    inputs = mine + factory.share(channels) + heads
    return (
        factory.matmul("mamba input projection", width, inputs, layers),
        convolution(factory, channels, pattern.conv_kernel, layers, bias=True),
        recurrence(
            factory,
            "mamba state",
            pattern.layer_state_bytes,
            layers,
            flops=flops,
            elements=factory.share(channels) + heads + mine,
            # Decay, bias of the step size and skip connection of each head.
            parameters=3 * heads,
        ),
        factory.elementwise("mamba gated norm", 3 * mine, layers, parameters=mine),
        factory.matmul("mamba output projection", mine, width, layers),
    )
