"""What a model and its requests occupy, and whether a device has room for it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.catalog.device import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.catalog.precision import Number
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE, blocks_for
from engine.simulator.decoder_step import DecoderStep
from engine.simulator.operators import CoreOperator, Rows

_LOGIT_BYTES = 4


@dataclass(frozen=True, slots=True)
class PagedTokens:
    """How many positions each sequence holds, and the blocks they are kept in."""

    sequences: int
    tokens: int
    block_size: int = DEFAULT_BLOCK_SIZE

    @property
    def blocks(self) -> int:
        """Blocks of one sequence: 2 for 17 tokens."""
        return blocks_for(self.tokens, self.block_size)

    @property
    def allocated(self) -> int:
        """Positions that these blocks have room for."""
        return self.blocks * self.block_size

    @property
    def unused(self) -> int:
        """Slots of one sequence that hold nothing: 15 for 17 tokens."""
        return self.allocated - self.tokens


@dataclass(frozen=True, slots=True)
class ActivationPeak:
    """Bytes of activations at their peak, and the expression with its values."""

    bytes: Number
    formula: str


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """Bytes on all devices together; ``fits`` is judged on one device, as all are alike.

    ``streamed`` are the weights that a decode step of all sequences reads, of experts those that
    its tokens are expected to touch. ``kv_cache`` holds recurrent states too;
    ``kv_bytes_per_token`` is what one more token adds while every window has room, on one copy of
    the cache.
    """

    weights: Number
    streamed: Number
    kv_cache: Number
    kv_bytes_per_token: Number
    activations: ActivationPeak
    capacity: Number
    devices: int
    paged: PagedTokens

    @property
    def total(self) -> Number:
        return self.weights + self.kv_cache + self.activations.bytes

    @property
    def fits(self) -> bool:
        return self.total <= self.capacity


def memory_needs(
    step: DecoderStep, hardware: HardwareSpec, paged: PagedTokens, step_tokens: int
) -> MemoryNeeds:
    """Memory of a run that holds ``paged`` and whose largest step has ``step_tokens`` tokens.

    Of one data-parallel group, all its stages together.
    """
    tensor, stages = step.group.devices, step.layout.stages
    devices = tensor * stages
    model = step.model
    kv = step.formats.kv
    state = model.state_bytes_per_sequence
    entries = model.kv_cache_bytes(paged.tokens, kv.bits, paged.block_size) - state
    copies = step.group.cache_copies(model)
    kept = entries if copies == 1 else entries * copies
    return MemoryNeeds(
        weights=tensor * _resident(step),
        streamed=tensor * step.streamed_weight_bytes(paged.sequences),
        kv_cache=paged.sequences * (kept + state),
        kv_bytes_per_token=model.kv_bytes_per_token(kv.bits),
        activations=peak_activations(step, step_tokens, paged.sequences),
        capacity=devices * hardware.memory_bytes,
        devices=devices,
        paged=paged,
    )


def _resident(step: DecoderStep) -> Number:
    """Weights on one device: those of its operators, and its part of the looked-up ones."""
    looked_up = step.group.share(looked_up_parameters(step.model))
    return step.resident_weight_bytes + step.formats.weights.bytes_for(looked_up)


def looked_up_parameters(model: ModelSpec) -> int:
    """Parameters of which a token reads one row: learned positions, an untied embedding."""
    rows = model.extras.learned_positions
    if not model.tied_embeddings:
        rows += model.vocab_size
    return rows * model.hidden_size


def peak_activations(step: DecoderStep, tokens: int, sampled: int) -> ActivationPeak:
    """Most bytes of activations that are held at once in a step, on all devices together.

    The residual stream of all tokens (all its streams), with the largest operator's inputs and
    outputs; or, at the end, the logits of the sampled positions in fp32. Buffers are reused from
    layer to layer.
    """
    width = step.model.hidden_size
    stream = width * max(step.model.extras.hc_mult, 1)
    largest = max(
        operator.live
        for operator in step.sequence
        if isinstance(operator, CoreOperator) or operator.rows is Rows.TOKENS
    )
    devices = step.group.devices * step.layout.stages
    stored = step.formats.stored_activations
    size = f"{stored.bits / 8:g} B"
    on_all = "" if devices == 1 else f" × {devices} devices"
    layers = stored.bytes_for(tokens * (stream + largest))
    logits = sampled * step.vocabulary * _LOGIT_BYTES
    head = stored.bytes_for((tokens + sampled) * width) + logits
    if layers >= head:
        formula = f"{tokens:,} tokens × ({stream:,} + {largest:,}) × {size}{on_all}"
        return ActivationPeak(devices * layers, formula)
    formula = (
        f"(({tokens:,} + {sampled:,}) × {width:,} × {size} + {sampled:,} × {step.vocabulary:,} × "
        f"{_LOGIT_BYTES} B of logits){on_all}"
    )
    return ActivationPeak(devices * head, formula)
