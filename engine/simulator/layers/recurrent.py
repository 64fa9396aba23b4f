"""What both kinds of recurrent layers share: one state a sequence, read and written every step."""

from __future__ import annotations

from engine.catalog.precision import Number, whole
from engine.simulator.layers.factory import OperatorFactory
from engine.simulator.operators import CoreOperator, LinearOperator, Term, Unit
from engine.simulator.work import StateWork


def convolution(
    factory: OperatorFactory, channels: int, kernel: int, layers: int, *, bias: bool
) -> LinearOperator:
    """A causal convolution of each channel by itself: 2·kernel FLOPs a channel and token."""
    mine = factory.share(channels)
    size = factory.formats.stored_activations.bits / 8
    parameters = mine * (kernel + (1 if bias else 0))
    return LinearOperator(
        "convolution",
        flops=2 * kernel * mine * layers,
        weight_bytes=factory.weights(parameters * layers),
        activation_bytes=factory.act(2 * mine * layers),
        flops_text=f"2 × {kernel} × {mine:,} × {layers} layers",
        bytes_text=f"2 × {mine:,} × {size:g} B × {layers} layers",
        live=2 * mine,
    )


def recurrence(
    factory: OperatorFactory,
    name: str,
    state_bytes: int,
    layers: int,
    *,
    flops: Term,
    elements: Number,
    parameters: Number,
) -> CoreOperator:
    """The update of the state by each token, and its product with the token's query.

    ``flops`` and ``elements`` (read and written beside the state) are of one token.
    """
    device = factory.group.devices
    state = whole(2 * state_bytes * layers / device)
    text = f"2 × {state_bytes:,} B of state × {layers} layers"
    if device > 1:
        text += f" / {device} devices"
    return CoreOperator(
        name,
        StateWork(),
        flops=(flops,),
        cache=(Term(Unit.READS, state, text),),
        activations=(factory.queries_and_outputs(elements, layers),),
        weight_bytes=factory.weights(parameters * layers),
        live=elements,
    )
