"""Memory of many runs of one model at once: the fast way to ``memory_needs``."""

from __future__ import annotations

import numpy as np

from engine.catalog.kv_cache import KvGroup, kv_groups
from engine.scheduling.blocks import DEFAULT_BLOCK_SIZE
from engine.simulator.decoder_step import DecoderStep
from engine.simulator.memory import looked_up_parameters, peak_activations
from engine.simulator.search.uniform import Floats, Ints


def total_bytes(step: DecoderStep, sequences: Floats, tokens: Ints, step_tokens: Floats) -> Floats:
    """Weights, cache and activations on all devices together.

    ``sequences`` of ``tokens`` positions each are held; the largest step has ``step_tokens``.
    """
    cache = sequences * cache_bytes(step, tokens)
    return weight_bytes(step) + cache + activation_bytes(step, step_tokens, sequences)


def weight_bytes(step: DecoderStep) -> float:
    """Weights on all devices together."""
    looked_up = step.group.share(looked_up_parameters(step.model))
    one = step.resident_weight_bytes + step.formats.weights.bytes_for(looked_up)
    return float(step.group.devices * one)


def cache_bytes(step: DecoderStep, tokens: Ints, block_size: int = DEFAULT_BLOCK_SIZE) -> Floats:
    """Cache and states of one sequence of ``tokens`` positions, on all devices together."""
    model = step.model
    entries = np.zeros(np.shape(tokens))
    for group in kv_groups(model, step.formats.kv.bits):
        each = float(group.layers * group.bytes_per_entry)
        entries = entries + each * _entries(group, tokens, block_size)
    return entries * step.group.cache_copies(model) + model.state_bytes_per_sequence


def _entries(group: KvGroup, tokens: Ints, block_size: int) -> Ints:
    kept = tokens if group.window is None else np.minimum(tokens, group.window)
    return -(-(kept // group.tokens_per_entry) // block_size) * block_size


def activation_bytes(step: DecoderStep, tokens: Floats, sampled: Floats) -> Floats:
    """Activations of steps at their peak, on all devices together.

    ``peak_activations`` is the larger of two sums that are linear in tokens and samples: one token
    alone gives the first, one sample alone the second.
    """
    layers = tokens * float(peak_activations(step, 1, 0).bytes)
    stream = float(step.formats.stored_activations.bytes_for(step.model.hidden_size))
    sample = float(peak_activations(step, 0, 1).bytes)
    return np.maximum(layers, tokens * step.group.devices * stream + sampled * sample)
