"""All operators of one step of a decoder, composed from its layers by kind.

Each operator reads its inputs and writes its outputs: nothing is fused across operators, except
the attention core, whose scores stay on the chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.catalog.attention import (
    CompressedAttention,
    HybridLinearAttention,
    HybridMamba2Attention,
    SparseAttention,
    WindowGroup,
)
from engine.catalog.models import ModelSpec
from engine.catalog.precision import Number
from engine.errors import UnsupportedModel
from engine.refusals import refused
from engine.scheduling.plan import SequenceShape
from engine.simulator.formats import StorageFormats
from engine.simulator.layers.compressed import compressed_attention
from engine.simulator.layers.delta_net import delta_net
from engine.simulator.layers.experts import expert_mlp
from engine.simulator.layers.factory import OperatorFactory, Operators
from engine.simulator.layers.frame import embedding, ends, framed
from engine.simulator.layers.heads import heads_attention
from engine.simulator.layers.latent import latent_attention
from engine.simulator.layers.mamba2 import mamba2
from engine.simulator.layers.mlp import dense_mlp
from engine.simulator.layers.sparse import sparse_attention
from engine.simulator.layout import ONE_DEVICE, Layout
from engine.simulator.operators import CoreOperator, LinearOperator, Operator, Rows
from engine.simulator.work import Measure, Work


@dataclass(frozen=True, slots=True)
class StepShape:
    """A ragged batch in the few numbers that its cost depends on.

    ``work`` holds the counts of each of the step's measures.
    """

    tokens: int
    sampled: int
    work: tuple[Work, ...]


def require_known(model: ModelSpec) -> None:
    """Refuse combinations of parts that no known model has, and that have no known cost.

    Raises:
        UnsupportedModel: the parts do not go together (field "model").
    """
    pattern = model.attention
    kind = f"attention of the kind {pattern.kind}"
    latent = model.mla is not None
    sparse = isinstance(pattern, SparseAttention)
    problem = None
    if sparse and (model.mla is None or not model.mla.q_lora_rank):
        problem = f"{kind} without a low-rank query and a latent cache"
    elif latent and not sparse and pattern.kind != "global":
        problem = f"latent attention together with {kind}"
    elif isinstance(pattern, HybridMamba2Attention) and (set(pattern.layer_pattern) - set("M*E-")):
        problem = "layers of an unknown letter"
    elif isinstance(pattern, HybridMamba2Attention) and "E" in pattern.layer_pattern:
        problem = None if model.moe else "layers of experts without experts"
    if problem:
        raise UnsupportedModel(f"{problem} is not simulated", field="model")


class DecoderStep:
    """All operators of a model's step on one device of a group, ready for any batch.

    With stages it is what one device of each does, one after the other. Where groups share out
    the experts, each is taken to run such a step at the same time. ``blocks`` counts mixers and
    feed-forward blocks of all layers, ``expert_layers`` the layers with experts.

    Raises:
        UnsupportedModel: see ``require_known``.
        InvalidRequest: there are more stages than layers (field "stages").
    """

    def __init__(
        self, model: ModelSpec, formats: StorageFormats, layout: Layout = ONE_DEVICE
    ) -> None:
        require_known(model)
        if layout.stages > model.num_layers:
            raise refused("stages_at_most", field="stages", high=model.num_layers)
        self.model = model
        self.formats = formats
        self.layout = layout
        self.group = layout.group
        self.vocabulary = self.group.share(model.vocab_size)
        dense, self.expert_layers = _feed_forward_layers(model)
        self.blocks = _mixer_layers(model) + dense + self.expert_layers
        factory = OperatorFactory(model, formats, layout)
        self.sequence: Operators = (
            *embedding(factory),
            *framed(factory, "attention", _mixers(factory), _mixer_layers(model)),
            *_feed_forward(factory),
            *factory.stage_transfers(),
            *ends(factory),
        )
        self.linear = tuple(item for item in self.sequence if isinstance(item, LinearOperator))
        self.cores = tuple(item for item in self.sequence if isinstance(item, CoreOperator))
        self.measures: tuple[Measure, ...] = tuple(
            dict.fromkeys(core.measure for core in self.cores)
        )

    @property
    def resident_weight_bytes(self) -> Number:
        """Weights that this device keeps for its operators: all but what is only looked up."""
        return sum(operator.resident_bytes for operator in self.sequence)

    def streamed_weight_bytes(self, sequences: int = 1) -> Number:
        """Weights that this device reads in a decode step of that many sequences."""
        linear = sum(operator.weights_read(sequences) for operator in self.linear)
        return linear + sum(core.resident_bytes for core in self.cores)

    def measure(self, shapes: Sequence[SequenceShape]) -> StepShape:
        """Reduce a batch to what its cost depends on."""
        tokens = sampled = 0
        for shape in shapes:
            tokens += shape.new_tokens
            sampled += shape.sampled
        return StepShape(
            tokens, sampled, tuple([measure.count(shapes) for measure in self.measures])
        )

    def operators(self, shape: StepShape) -> tuple[Operator, ...]:
        """The step's operators in the order they run."""
        counts = {Rows.TOKENS: shape.tokens, Rows.SAMPLED: shape.sampled}
        work = dict(zip(self.measures, shape.work, strict=True))
        return tuple(
            item.at(counts[item.rows])
            if isinstance(item, LinearOperator)
            else item.at(work[item.measure])
            for item in self.sequence
        )


def _mixer_layers(model: ModelSpec) -> int:
    """Layers that mix positions: all, except where a layer is one block of either kind."""
    pattern = model.attention
    if isinstance(pattern, HybridMamba2Attention):
        return sum(letter in "M*" for letter in pattern.layer_pattern)
    return model.num_layers


def _mixers(factory: OperatorFactory) -> Operators:
    """Attention and recurrence of all layers, by kind."""
    model = factory.model
    pattern, layers = model.attention, model.num_layers
    if isinstance(pattern, CompressedAttention):
        return compressed_attention(factory, pattern)
    if isinstance(pattern, SparseAttention):
        return sparse_attention(factory, pattern, layers)
    if model.mla is not None:
        return latent_attention(factory, layers)
    if isinstance(pattern, HybridLinearAttention):
        full = sum(map(pattern.is_full, range(layers)))
        linear = delta_net(factory, pattern, layers - full) if full < layers else ()
        return (*linear, *_full_attention(factory, full))
    if isinstance(pattern, HybridMamba2Attention):
        states, full = (pattern.layer_pattern.count(letter) for letter in "M*")
        recurrent = mamba2(factory, pattern, states) if states else ()
        return (*recurrent, *_full_attention(factory, full))
    return heads_attention(factory, pattern.window_groups(layers))


def _full_attention(factory: OperatorFactory, layers: int) -> Operators:
    return heads_attention(factory, (WindowGroup(None, layers),)) if layers else ()


def _feed_forward_layers(model: ModelSpec) -> tuple[int, int]:
    """Layers with a dense feed-forward block, and layers with experts."""
    pattern, moe = model.attention, model.moe
    if isinstance(pattern, HybridMamba2Attention):
        return pattern.layer_pattern.count("-"), pattern.layer_pattern.count("E")
    if moe is None:
        return model.num_layers, 0
    dense = min(moe.first_dense_layers, model.num_layers)
    return dense, model.num_layers - dense


def _feed_forward(factory: OperatorFactory) -> Operators:
    """The feed-forward blocks of all layers: dense ones, and experts."""
    model, moe = factory.model, factory.model.moe
    dense, experts = _feed_forward_layers(model)
    inside: Operators = ()
    if dense:
        inside += dense_mlp(factory, model.intermediate_size, dense)
    if moe is not None and experts:
        inside += expert_mlp(factory, moe, experts)
    return framed(factory, "mlp", inside, dense + experts) if inside else ()
