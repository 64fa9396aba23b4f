"""What stands around every block: norms, the residual stream, the model's two ends.

DeepSeek-V4 keeps several residual streams (hyper-connections): small products of all streams give
the weights by which they become one input of a block and are mixed with its output.
"""

from __future__ import annotations

from engine.simulator.layers.factory import OperatorFactory, Operators
from engine.simulator.operators import LinearOperator, Rows


def embedding(factory: OperatorFactory) -> Operators:
    """A row read and a row written a stream; learned positions are one more row read and added."""
    width, extras = factory.width, factory.model.extras
    streams = max(extras.hc_mult, 1)
    looked_up = (1 + streams) * width + (2 * width if extras.learned_positions else 0)
    return (factory.elementwise("embedding", looked_up, 1),)


def framed(factory: OperatorFactory, name: str, inside: Operators, layers: int) -> Operators:
    """A block ("attention", "mlp") of ``layers`` layers with its norms and its residual."""
    extras, width = factory.model.extras, factory.width
    parameters = factory.norm_parameters
    norm = factory.elementwise(f"{name} norm", 2 * width, layers, parameters=parameters)
    after: Operators = ()
    if extras.norms_per_layer > 2:
        label = f"norm after {name}"
        after = (factory.elementwise(label, 2 * width, layers, parameters=parameters),)
    streams = max(extras.hc_mult, 1)
    return (
        *_stream_weights(factory, name, layers),
        norm,
        *inside,
        *factory.all_reduce(f"all-reduce after {name}", layers),
        *after,
        # The streams read and written, and the block's output read.
        factory.elementwise(f"{name} residual", (2 * streams + 1) * width, layers),
    )


def _stream_weights(factory: OperatorFactory, name: str, layers: int) -> tuple[LinearOperator, ...]:
    """Hyper-connections: all streams give 2n + n² weights (bias, 3 scales); n become one."""
    streams = factory.model.extras.hc_mult
    if not streams:
        return ()
    width, outputs = factory.width, (2 + streams) * streams
    label = f"{name} stream weights"
    inputs, bias = streams * width, outputs + 3
    return (
        factory.matmul(label, inputs, outputs, layers, bias=bias, replicated=True),
        factory.elementwise(f"{name} input from streams", (streams + 1) * width, layers),
    )


def ends(factory: OperatorFactory) -> Operators:
    """Final norm and LM head, for sampled positions only; a tied embedding is read here too."""
    model, width = factory.model, factory.width
    vocabulary = factory.share(model.vocab_size)
    size = factory.formats.stored_activations.bits / 8
    operators: list[LinearOperator] = [*_last_streams(factory)]
    operators.append(
        factory.elementwise(
            "final norm", 2 * width, 1, parameters=factory.norm_parameters, rows=Rows.SAMPLED
        )
    )
    operators.append(
        LinearOperator(
            "lm head",
            Rows.SAMPLED,
            flops=2 * width * vocabulary,
            weight_bytes=factory.weights(width * vocabulary),
            activation_bytes=factory.act(width + vocabulary),
            flops_text=f"2 × {width:,} × {vocabulary:,}",
            bytes_text=f"({width:,} + {vocabulary:,}) × {size:g} B",
        )
    )
    if model.extras.logit_softcap:
        cap = factory.elementwise("logit soft cap", 2 * vocabulary, 1, rows=Rows.SAMPLED)
        operators.append(cap)
    if factory.group.devices > 1:
        link = factory.act(model.vocab_size) * factory.group.gather_factor
        operators.append(LinearOperator("logits gather", Rows.SAMPLED, link_bytes=link))
    return tuple(operators)


def _last_streams(factory: OperatorFactory) -> tuple[LinearOperator, ...]:
    """Hyper-connections: the streams become one before the final norm (a bias each, a scale)."""
    streams = factory.model.extras.hc_mult
    if not streams:
        return ()
    width = factory.width
    sampled = Rows.SAMPLED
    label, inputs, bias = "final stream weights", streams * width, streams + 1
    return (
        factory.matmul(label, inputs, streams, 1, bias=bias, rows=sampled, replicated=True),
        factory.elementwise("final input from streams", (streams + 1) * width, 1, rows=sampled),
    )
