"""The operators of one step of a dense decoder, from its structure.

Legend: d hidden size, H query heads, Hkv key-value heads, dh head size, f MLP size, V vocabulary,
L layers, m tokens of the step. A product of m x K with K x N takes 2mKN FLOPs and moves KN weights
and m(K+N) activations. Norms, rotations, activations and sums move bytes and are given no FLOPs.
Each operator reads its inputs and writes its outputs: nothing is fused across operators, except
the attention core, whose scores stay on the chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.catalog.attention import WindowedAttention, WindowGroup
from engine.catalog.models import ModelSpec
from engine.catalog.parts import QkNorm
from engine.catalog.precision import Number
from engine.errors import UnsupportedModel
from engine.scheduling.plan import SequenceShape
from engine.simulator.attention_shape import causal_pairs, visible_positions
from engine.simulator.formats import StepFormats
from engine.simulator.operators import AttentionOperator, LinearOperator, Operator, Rows
from engine.simulator.parallelism import TensorParallel


@dataclass(frozen=True, slots=True)
class StepShape:
    """A ragged batch in the few numbers that its cost depends on.

    ``attention`` holds, for each kind of window, query-key pairs and cached positions read.
    """

    tokens: int
    sampled: int
    attention: tuple[tuple[int, int], ...]


def require_dense(model: ModelSpec) -> None:
    """Refuse models whose step is not simulated.

    Raises:
        UnsupportedModel: the model has experts, or other than per-head attention (field "model").
    """
    parts = [
        (model.moe is not None, "its mixture of experts"),
        (model.mla is not None, "its latent attention"),
        (
            not isinstance(model.attention, WindowedAttention),
            f"its attention of the kind {model.attention.kind}",
        ),
        (model.extras.attn_sinks or model.extras.attn_output_gate, "its gated attention"),
    ]
    missing = [name for present, name in parts if present]
    if missing:
        raise UnsupportedModel(
            f"the time of this model is not simulated yet: {' and '.join(missing)} is missing; "
            "choose a dense model (memory and KV figures of this one are in the models list)",
            field="model",
        )


class DecoderStep:
    """All operators of a model's step on one device of a group, ready for any batch.

    Raises:
        UnsupportedModel: see ``require_dense``.
    """

    def __init__(self, model: ModelSpec, formats: StepFormats, group: TensorParallel) -> None:
        require_dense(model)
        self.model = model
        self.formats = formats
        self.group = group
        self._stored = formats.stored_activations
        self.heads_size = group.share(model.num_attention_heads) * model.head_dim
        self.kv_size = group.kv_heads(model.num_kv_heads) * model.head_dim
        self.mlp_size = group.share(model.intermediate_size)
        self.vocabulary = group.share(model.vocab_size)
        self.before = self._before_attention()
        self.attention = tuple(self._attention(item) for item in self._windows)
        self.after = self._after_attention()

    @property
    def linear(self) -> tuple[LinearOperator, ...]:
        """Every operator but the attention cores."""
        return (*self.before, *self.after)

    @property
    def streamed_weight_bytes(self) -> Number:
        """Weights that this device reads in a step that samples."""
        return sum(operator.weight_bytes for operator in self.linear)

    @property
    def _windows(self) -> tuple[WindowGroup, ...]:
        pattern = self.model.attention
        if not isinstance(pattern, WindowedAttention):
            raise AssertionError("require_dense lets only windowed patterns through")
        return pattern.window_groups(self.model.num_layers)

    def measure(self, shapes: Sequence[SequenceShape]) -> StepShape:
        """Reduce a batch to what its cost depends on."""
        tokens = sampled = 0
        for shape in shapes:
            tokens += shape.new_tokens
            sampled += shape.samples
        return StepShape(
            tokens, sampled, tuple(_attended(shapes, item.window) for item in self.attention)
        )

    def operators(self, shape: StepShape) -> tuple[Operator, ...]:
        """The step's operators in the order they run."""
        counts = {Rows.TOKENS: shape.tokens, Rows.SAMPLED: shape.sampled}
        before = (operator.at(counts[operator.rows]) for operator in self.before)
        cores = (
            operator.at(shape.tokens, pairs, positions)
            for operator, (pairs, positions) in zip(self.attention, shape.attention, strict=True)
        )
        after = (operator.at(counts[operator.rows]) for operator in self.after)
        return (*before, *cores, *after)

    # ── how each kind of operator is counted ─────────────────────────────────────────────────

    def _act(self, elements: Number) -> Number:
        return self._stored.bytes_for(elements)

    def _matmul(
        self, name: str, inputs: Number, outputs: Number, bias: bool, bias_size: Number = 0
    ) -> LinearOperator:
        """A product with weights [outputs, inputs] in every layer."""
        layers = self.model.num_layers
        parameters = inputs * outputs + ((bias_size or outputs) if bias else 0)
        size = self._stored.bits / 8
        return LinearOperator(
            name,
            flops=2 * inputs * outputs * layers,
            weight_bytes=self.formats.weights.bytes_for(parameters * layers),
            activation_bytes=self._act((inputs + outputs) * layers),
            flops_text=f"2 × {inputs:,} × {outputs:,} × {layers} layers",
            bytes_text=f"({inputs:,} + {outputs:,}) × {size:g} B × {layers} layers",
        )

    def _elementwise(
        self,
        name: str,
        elements: Number,
        parameters: int = 0,
        *,
        rows: Rows = Rows.TOKENS,
        layers: int | None = None,
    ) -> LinearOperator:
        """An operator that moves ``elements`` a row and layer, and does next to no arithmetic."""
        repeats = self.model.num_layers if layers is None else layers
        size = self._stored.bits / 8
        return LinearOperator(
            name,
            rows,
            weight_bytes=self.formats.weights.bytes_for(parameters * repeats),
            activation_bytes=self._act(elements * repeats),
            bytes_text=f"{elements:,} × {size:g} B" + (f" × {repeats} layers" * (repeats > 1)),
        )

    def _before_attention(self) -> tuple[LinearOperator, ...]:
        model = self.model
        extras = model.extras
        width = model.hidden_size
        norm = width * extras.norm.vectors
        rotated = self.heads_size + self.kv_size
        # A row read and a row written; learned positions are one more row read and added.
        looked_up = 2 * width + (2 * width if extras.learned_positions else 0)
        operators = [
            self._elementwise("embedding", looked_up, layers=1),
            self._elementwise("attention norm", 2 * width, norm),
            self._matmul(
                "qkv projection",
                width,
                self.heads_size + 2 * self.kv_size,
                bias=model.qkv_bias or extras.all_biases,
            ),
        ]
        if extras.qk_norm is not QkNorm.NONE:
            shared = extras.qk_norm is QkNorm.PER_HEAD
            size = 2 * model.head_dim if shared else model.query_size + model.kv_size
            operators.append(self._elementwise("query and key norm", 2 * rotated, size))
        if not extras.learned_positions:
            operators.append(self._elementwise("rotary embedding", 2 * rotated))
        return (*operators, self._kv_write())

    def _kv_write(self) -> LinearOperator:
        layers = self.model.num_layers
        elements = 2 * self.kv_size * layers
        kv_bytes = self.formats.kv.bytes_for(elements)
        read = self._act(elements)
        return LinearOperator(
            "kv cache write",
            activation_bytes=read,
            kv_bytes=kv_bytes,
            bytes_text=f"({read:,} B read + {kv_bytes:,} B written)",
        )

    def _attention(self, item: WindowGroup) -> AttentionOperator:
        if len(self._windows) == 1:
            name = "attention"
        else:
            name = "attention (global)" if item.window is None else "attention (windowed)"
        layers = item.layers
        kv = self.formats.kv
        return AttentionOperator(
            name,
            item.window,
            flops_per_pair=4 * self.heads_size * layers,
            kv_bytes_per_position=kv.bytes_for(2 * self.kv_size * layers),
            activation_bytes=self._act(2 * self.heads_size * layers),
            flops_text=f"4 × {self.heads_size:,} × {layers} layers",
            bytes_text=f"2 × {self.kv_size:,} × {kv.bits / 8:g} B × {layers} layers",
        )

    def _after_attention(self) -> tuple[LinearOperator, ...]:
        model = self.model
        extras = model.extras
        width = model.hidden_size
        norm = width * extras.norm.vectors
        gated = model.mlp.gated
        biased = extras.all_biases
        hidden = 2 * self.mlp_size if gated else self.mlp_size
        extra_norm = extras.norms_per_layer > 2
        operators = [
            self._matmul("output projection", self.heads_size, width, biased, width),
            self._all_reduce("all-reduce after attention"),
            self._elementwise("norm after attention", 2 * width, norm) if extra_norm else None,
            self._elementwise("attention residual", 3 * width),
            self._elementwise("mlp norm", 2 * width, norm),
            self._matmul(
                "gate and up projection" if gated else "up projection", width, hidden, biased
            ),
            self._elementwise("activation", hidden + self.mlp_size),
            self._matmul("down projection", self.mlp_size, width, biased, width),
            self._all_reduce("all-reduce after mlp"),
            self._elementwise("norm after mlp", 2 * width, norm) if extra_norm else None,
            self._elementwise("mlp residual", 3 * width),
            self._elementwise("final norm", 2 * width, norm, rows=Rows.SAMPLED, layers=1),
            *self._head(),
        ]
        return tuple(operator for operator in operators if operator is not None)

    def _head(self) -> tuple[LinearOperator | None, ...]:
        """The LM head, for sampled positions only; a tied embedding is read here like any other."""
        width, vocabulary = self.model.hidden_size, self.vocabulary
        size = self._stored.bits / 8
        head = LinearOperator(
            "lm head",
            Rows.SAMPLED,
            flops=2 * width * vocabulary,
            weight_bytes=self.formats.weights.bytes_for(width * vocabulary),
            activation_bytes=self._act(width + vocabulary),
            flops_text=f"2 × {width:,} × {vocabulary:,}",
            bytes_text=f"({width:,} + {vocabulary:,}) × {size:g} B",
        )
        gather = None
        if self.group.devices > 1:
            whole = self._act(self.model.vocab_size)
            link = whole * self.group.gather_factor
            gather = LinearOperator("logits gather", Rows.SAMPLED, link_bytes=link)
        cap = None
        if self.model.extras.logit_softcap:
            cap = self._elementwise("logit soft cap", 2 * vocabulary, rows=Rows.SAMPLED, layers=1)
        return (head, cap, gather)

    def _all_reduce(self, name: str) -> LinearOperator | None:
        if self.group.devices == 1:
            return None
        moved = self._act(self.model.hidden_size * self.model.num_layers)
        return LinearOperator(name, link_bytes=moved * self.group.all_reduce_factor)


def _attended(shapes: Sequence[SequenceShape], window: int | None) -> tuple[int, int]:
    """Query-key pairs and cached positions of a batch under one window."""
    pairs = positions = 0
    if window is None:
        for shape in shapes:
            new = shape.new_tokens
            end = shape.prefix_tokens + new
            pairs += new * end - new * (new - 1) // 2
            positions += end
        return pairs, positions
    for shape in shapes:
        pairs += causal_pairs(shape.prefix_tokens, shape.new_tokens, window)
        positions += visible_positions(shape.prefix_tokens, shape.new_tokens, window)
    return pairs, positions
