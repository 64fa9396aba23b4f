"""The formula for the typical time of a step, from the few sums that it depends on.

``price`` takes floats, for one step while it runs, or arrays, for thousands of steps while
efficiencies are fitted: the same lines are both the fast and the slow path.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value", float, NDArray[np.float64])
KNEE = 4.0
"""Exponent by which times of arithmetic and of traffic add up: measured knees are rounded."""
_TINY = 1e-30


class Terms(NamedTuple, Generic[Value]):
    """What one step asks of one device: FLOPs, bytes, counts.

    ``*_rows`` are tokens for each weight read. ``context`` is the mean number of positions that a
    query sees, ``scores`` counts query-key pairs of all heads and layers. ``link_bytes`` and
    ``reduces`` are of the devices that share every matrix, ``exchange*`` of groups that share out
    experts, ``stage_bytes`` go from stage to stage.
    """

    gemm_flops: Value
    gemm_bytes: Value
    gemm_rows: Value
    head_flops: Value
    head_bytes: Value
    head_rows: Value
    expert_flops: Value
    expert_bytes: Value
    expert_rows: Value
    move_bytes: Value
    core_flops: Value
    core_bytes: Value
    context: Value
    scores: Value
    link_bytes: Value
    reduces: Value
    layers: Value
    sequences: Value
    exchange_bytes: Value
    exchanges: Value
    stage_bytes: Value


class Rates(NamedTuple, Generic[Value]):
    """What a device and an engine reach: FLOP/s, B/s, seconds; ``gemm_half`` and
    ``attention_half`` are the rows and positions at which half of a rate is reached;
    ``expert_*`` are shares of those of a plain product; ``weight_time`` unpacks a weight."""

    gemm_rate: Value
    gemm_bandwidth: Value
    gemm_half: Value
    weight_time: Value
    expert_bandwidth: Value
    expert_rate: Value
    attention_rate: Value
    attention_bandwidth: Value
    attention_half: Value
    score_bytes: Value
    move_bandwidth: Value
    link_bandwidth: Value
    reduce_latency: Value
    layer_gap: Value
    layer_launch: Value
    step: Value
    sequence: Value
    stage: Value
    first_token: Value
    exchange_bandwidth: Value
    exchange_latency: Value
    stage_bandwidth: Value


class Peaks(NamedTuple):
    """A device's limits for each of many steps: FLOP/s and B/s."""

    matmul: NDArray[np.float64]
    attention: NDArray[np.float64]
    bandwidth: NDArray[np.float64]
    link: NDArray[np.float64]


class Parts(NamedTuple, Generic[Value]):
    """Seconds of a step by what takes them; they add up to its time."""

    operators: Value
    launch: Value
    scheduler: Value
    sampling: Value
    communication: Value

    @property
    def time(self) -> Value:
        return self.operators + self.launch + self.scheduler + self.sampling + self.communication


def price(terms: Terms[Value], rates: Rates[Value]) -> Parts[Value]:
    """The typical time of a step.

    A product takes (compute^4 + memory^4)^(1/4): its rate of arithmetic rises with the rows as
    rows / (rows + half). The attention core likewise, over the positions a query sees. Each layer
    has gaps between its kernels; launches hide behind the device's work until they take longer.
    """
    return with_core(
        outside_core(terms, rates),
        core_time(terms.core_flops, terms.core_bytes, terms.context, terms.scores, rates),
        rates,
    )


class OutsideCore(NamedTuple, Generic[Value]):
    """Seconds of a step that do not depend on what its sequences have cached."""

    products: Value
    communication: Value
    gaps: Value
    launching: Value
    sampling: Value


def outside_core(terms: Terms[Value], rates: Rates[Value]) -> OutsideCore[Value]:
    """All of a step but its attention core: the same for equal numbers of tokens and samples."""
    products = (
        _product(terms.gemm_flops, terms.gemm_bytes, terms.gemm_rows, rates)
        + _product(terms.head_flops, terms.head_bytes, terms.head_rows, rates)
        + _product(
            terms.expert_flops / rates.expert_rate,
            terms.expert_bytes / rates.expert_bandwidth,
            terms.expert_rows,
            rates,
        )
        + terms.move_bytes / rates.move_bandwidth
    )
    communication = (
        terms.reduces * rates.reduce_latency
        + terms.link_bytes / rates.link_bandwidth
        + terms.exchanges * rates.exchange_latency
        + terms.exchange_bytes / rates.exchange_bandwidth
        + terms.stage_bytes / rates.stage_bandwidth
    )
    return OutsideCore(
        products,
        communication,
        terms.layers * rates.layer_gap,
        terms.layers * rates.layer_launch,
        terms.sequences * rates.sequence,
    )


def with_core(outside: OutsideCore[Value], core: Value, rates: Rates[Value]) -> Parts[Value]:
    """A whole step, of its two parts."""
    products, communication, gaps, launching, sampling = outside
    operators = products + core
    busy = operators + communication + gaps
    total = _longest(busy, launching)
    return Parts(
        operators,
        gaps + (total - busy),
        rates.step + rates.stage,
        sampling,
        communication,
    )


def price_ideal(terms: Terms[NDArray[np.float64]], peaks: Peaks) -> NDArray[np.float64]:
    """The same sums at the roofline: no overheads, no latencies, every rate at its peak.

    The longer of arithmetic and memory traffic, sort by sort instead of operator by operator.
    """
    weights = (
        np.maximum(terms.gemm_flops / peaks.matmul, terms.gemm_bytes / peaks.bandwidth)
        + np.maximum(terms.head_flops / peaks.matmul, terms.head_bytes / peaks.bandwidth)
        + np.maximum(terms.expert_flops / peaks.matmul, terms.expert_bytes / peaks.bandwidth)
    )
    core = np.maximum(terms.core_flops / peaks.attention, terms.core_bytes / peaks.bandwidth)
    talk = (terms.link_bytes + terms.exchange_bytes + terms.stage_bytes) / peaks.link
    return weights + core + terms.move_bytes / peaks.bandwidth + talk


def _product(flops: Value, moved: Value, rows: Value, rates: Rates[Value]) -> Value:
    compute = flops * (rows + rates.gemm_half) / (rates.gemm_rate * (rows + _TINY))
    memory = moved / rates.gemm_bandwidth
    unpacking = flops * rates.weight_time / (2 * rows + _TINY)
    return _longest(compute, memory, unpacking)


def core_time(flops: Value, moved: Value, seen: Value, scores: Value, rates: Rates[Value]) -> Value:
    """Seconds of the attention core, whose queries see ``seen`` positions on the mean."""
    compute = flops * (seen + rates.attention_half)
    compute = compute / (rates.attention_rate * (seen + _TINY))
    memory = (moved + scores * rates.score_bytes) / rates.attention_bandwidth
    return _longest(compute, memory)


def _longest(*times: Value) -> Value:
    """A smooth maximum: measured knees are rounded."""
    total = times[0] ** KNEE
    for time in times[1:]:
        total = total + time**KNEE
    return cast("Value", total ** (1 / KNEE))
