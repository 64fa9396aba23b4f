"""The dense feed-forward block: gated with three matrices, or two matrices."""

from __future__ import annotations

from engine.simulator.layers.factory import OperatorFactory, Operators


def dense_mlp(
    factory: OperatorFactory, intermediate_size: int, layers: int, prefix: str = ""
) -> Operators:
    """The block of ``layers`` layers; ``prefix`` starts the names of its operators."""
    gated = factory.model.mlp.gated
    biased = factory.model.extras.all_biases
    width, size = factory.width, factory.share(intermediate_size)
    hidden = 2 * size if gated else size
    up = "gate and up projection" if gated else "up projection"
    return (
        factory.matmul(prefix + up, width, hidden, layers, bias=hidden if biased else 0),
        factory.elementwise(f"{prefix}activation", hidden + size, layers, live=hidden + size),
        factory.matmul(
            f"{prefix}down projection", size, width, layers, bias=width if biased else 0
        ),
    )
