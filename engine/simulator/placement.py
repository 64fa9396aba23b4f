"""What the fullest device of a layout holds, and the largest load that still fits on it.

Stages hold whole layers, so that the fullest one has ceil(L / S) of L layers; of a model's two
ends (embedding, LM head) it is charged the larger. A load is judged on that device: elsewhere
there is as much room or more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from engine.catalog.precision import Number
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE
from engine.simulator.decoder_step import DecoderStep
from engine.simulator.layout import ONE_DEVICE, Layout
from engine.simulator.memory import looked_up_parameters, peak_activations
from engine.simulator.operators import LinearOperator, Rows


@dataclass(frozen=True, slots=True)
class Load:
    """What one data-parallel group holds at its peak.

    ``sequences`` of ``tokens`` cached positions each, and a step of ``step_tokens`` tokens.
    """

    sequences: int
    tokens: int
    step_tokens: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A model on the devices of one data-parallel group, in bytes of the fullest device.

    ``memory`` is what a device has, ``utilization`` the part of it that an engine may fill.
    ``drafter`` is a draft model that lies beside it, with a cache of its own for the same
    positions; its passes take turns with the model's, so that both use the same activations.
    """

    step: DecoderStep
    memory: int
    layout: Layout = ONE_DEVICE
    utilization: float = 1.0
    block_size: int = DEFAULT_BLOCK_SIZE
    drafter: Placement | None = None

    @property
    def usable(self) -> Fraction:
        """Bytes that may be filled."""
        return self.memory * Fraction(str(self.utilization))

    @property
    def stage_share(self) -> Fraction:
        """The part of all layers that the fullest stage holds: 16/61 of 61 layers on 4 stages."""
        layers = self.step.model.num_layers
        return Fraction(-(-layers // self.layout.stages), layers)

    @property
    def weights(self) -> Fraction:
        """Weights on the fullest device, a draft model's too."""
        return self._own_weights + (self.drafter.weights if self.drafter else 0)

    @property
    def _own_weights(self) -> Fraction:
        step = self.step
        ends = [
            item
            for item in step.sequence
            if isinstance(item, LinearOperator) and item.rows is Rows.SAMPLED
        ]
        head = sum((_exact(item.resident_bytes) for item in ends), Fraction(0))
        layers = _exact(step.resident_weight_bytes) - head
        looked_up = step.group.share(looked_up_parameters(step.model))
        table = _exact(step.formats.weights.bytes_for(looked_up))
        if self.layout.stages == 1:
            return layers + head + table
        if step.model.tied_embeddings:
            # The first stage looks tokens up in a copy of what the last one multiplies with.
            table += head
        return layers * self.stage_share + max(head, table)

    def kv_bytes(self, tokens: int) -> Fraction:
        """Cache and states of one sequence of ``tokens`` positions on the fullest device, those
        of a draft model too."""
        step, model = self.step, self.step.model
        state = model.state_bytes_per_sequence
        whole = model.kv_cache_bytes(tokens, step.formats.kv.bits, self.block_size)
        entries = _exact(whole) - state
        copies = Fraction(step.group.cache_copies(model)).limit_denominator(10**6)
        own = (entries * copies + state) / step.group.devices * self.stage_share
        return own + (self.drafter.kv_bytes(tokens) if self.drafter else 0)

    def activations(self, step_tokens: int, sequences: int) -> Fraction:
        """Activations of a step at their peak on one device."""
        peak = peak_activations(self.step, step_tokens, sequences)
        own = _exact(peak.bytes) / (self.step.group.devices * self.layout.stages)
        return max(own, self.drafter.activations(step_tokens, sequences)) if self.drafter else own

    def needed(self, load: Load) -> Fraction:
        """Bytes that the load takes on the fullest device, weights included."""
        return self.weights + self.beside_weights(load)

    def beside_weights(self, load: Load) -> Fraction:
        """Cache, states and activations of the load on the fullest device."""
        cache = load.sequences * self.kv_bytes(load.tokens)
        return cache + self.activations(load.step_tokens, load.sequences)

    def fits(self, load: Load) -> bool:
        return self.needed(load) <= self.usable

    def blocks(self, tokens: int | None, load: Load) -> int:
        """Blocks of the cache beside the weights and the activations of ``load``'s step.

        A block is charged its part of a sequence of ``tokens`` positions; None charges it what it
        takes while every window has room. Negative where not even the weights fit.
        """
        room = self.usable - self.weights - self.activations(load.step_tokens, load.sequences)
        if tokens is None:
            model, group = self.step.model, self.step.group
            each = _exact(model.kv_bytes_per_token(self.step.formats.kv.bits)) * self.block_size
            copies = Fraction(group.cache_copies(model)).limit_denominator(10**6)
            block = each * copies / group.devices * self.stage_share
        else:
            block = self.kv_bytes(tokens) / -(-tokens // self.block_size)
        return int(room // block)


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` that fits, 0 where 1 does not.

    ``fits`` must not turn true again once it was false.
    """
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _exact(number: Number) -> Fraction:
    return Fraction(number)
