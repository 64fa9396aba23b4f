"""A mixture of experts: a router sends each token to k of E experts; some experts see all tokens.

FLOPs follow the k experts of each token, memory all E, and the weights read in a step the experts
that its m tokens are expected to touch if routing is uniform: E(1 - (1 - k/E)^m).
"""

from __future__ import annotations

from engine.catalog.parts import MoeSpec
from engine.simulator.layers.factory import OperatorFactory, Operators
from engine.simulator.layers.mlp import dense_mlp


def expert_mlp(factory: OperatorFactory, moe: MoeSpec, layers: int) -> Operators:
    """Router, routed experts and shared experts of ``layers`` layers.

    On several devices each expert is divided, as every matrix is; the router is not.
    """
    model, width, top = factory.model, factory.width, moe.top_k
    biased = model.extras.all_biases
    size = factory.share(moe.expert_intermediate)
    hidden = 2 * size if model.mlp.gated else size
    router_bias = moe.num_experts if biased else 0
    up = "expert gate and up projection" if model.mlp.gated else "expert up projection"
    return (
        factory.matmul("router", width, moe.num_experts, layers, bias=router_bias, replicated=True),
        factory.elementwise("expert choice", moe.num_experts + 2 * top, layers),
        factory.routed_matmul(
            up, width, hidden, layers, bias=hidden if biased else 0, live=width + top * hidden
        ),
        factory.elementwise(
            "expert activation", top * (hidden + size), layers, live=top * (hidden + size)
        ),
        factory.routed_matmul(
            "expert down projection",
            size,
            width,
            layers,
            bias=width if biased else 0,
            live=top * (size + width),
        ),
        factory.elementwise("expert sum", (top + 1) * width, layers),
        *_shared_experts(factory, moe, layers),
        *factory.exchange(layers),
    )


def _shared_experts(factory: OperatorFactory, moe: MoeSpec, layers: int) -> Operators:
    """Experts that every token goes through, run as one, with a gate of one number in some."""
    if not moe.num_shared_experts:
        return ()
    width = factory.width
    size = moe.num_shared_experts * moe.shared_intermediate
    gate: Operators = ()
    if moe.shared_gate:
        gate = (
            factory.matmul("shared expert gate", width, 1, layers, replicated=True),
            factory.elementwise("shared expert gating", 2 * width + 1, layers),
        )
    return (
        *dense_mlp(factory, size, layers, prefix="shared expert "),
        *gate,
        factory.elementwise("shared expert sum", 3 * width, layers),
    )
