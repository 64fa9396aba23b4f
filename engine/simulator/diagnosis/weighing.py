"""How well each hypothesis explains what was measured: its probability, by Bayes' rule.

The deviation of a measured time from a typical one has two parts: one that all measurements of a
deployment share, as wide as the residuals of calibration say, and noise of each. The evidence of
a hypothesis is the mean likelihood over its strengths, so that one that can explain anything
counts less than one that must be so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.catalog.device import HardwareSpec
from engine.simulator.diagnosis.hypotheses import Hypothesis, Strength
from engine.simulator.diagnosis.observation import Observation, Times
from engine.simulator.intervals import Metric, interval

NOISE = 0.05
"""Standard deviation of the logarithm between repeated measurements: assumed."""
TAIL_NOISE = 0.35
"""The same for a 99th percentile, of even steps without interruptions: assumed."""
QUEUE_FLOOR = 0.01
"""Seconds added to queueing times before they are compared as ratios: assumed."""
_P90 = 1.2815515655446004
"""The 90th percentile of a standard normal."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A hypothesis with its probability, its likeliest strength and the times that this gives."""

    hypothesis: Hypothesis
    probability: float
    strength: Strength
    times: tuple[Times, ...]


def weigh(
    observations: Sequence[Observation], hypotheses: Sequence[Hypothesis]
) -> tuple[Weighed, ...]:
    """The hypotheses with their probabilities, the likeliest first."""
    hardware = observations[0].cell.hardware_spec
    found: list[tuple[Hypothesis, float, Strength, tuple[Times, ...]]] = []
    for hypothesis in hypotheses:
        logs: list[float] = []
        best: tuple[float, Strength, tuple[Times, ...]] | None = None
        for strength in hypothesis.strengths:
            times = tuple(hypothesis.predict(item, strength) for item in observations)
            fit = -_chi_squared(observations, times, hardware) / 2
            logs.append(fit)
            if best is None or fit > best[0]:
                best = fit, strength, times
        if best is None:
            raise AssertionError("a hypothesis has at least one strength")
        log = math.log(hypothesis.weight) + _log_mean(logs)
        found.append((hypothesis, log, best[1], best[2]))
    top = max(log for _, log, _, _ in found)
    total = sum(math.exp(log - top) for _, log, _, _ in found)
    weighed = [
        Weighed(hypothesis, math.exp(log - top) / total, strength, times)
        for hypothesis, log, strength, times in found
    ]
    return tuple(sorted(weighed, key=lambda item: -item.probability))


def _log_mean(logs: Sequence[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs) / len(logs))


def _chi_squared(
    observations: Sequence[Observation], times: Sequence[Times], hardware: HardwareSpec
) -> float:
    """Squared deviations of all measured numbers, in standard deviations."""
    total = 0.0
    alone = observations[0].cell.batch == 1
    for name, kind in (
        ("ttft", Metric.TTFT),
        ("itl", Metric.DECODE if alone else Metric.BATCHED),
        ("tokens_per_s", Metric.LATENCY if alone else Metric.BATCHED),
    ):
        low, high = (math.log(end) for end in interval(kind, hardware))
        if name == "tokens_per_s":
            low, high = -high, -low
        centre, width = (low + high) / 2, (high - low) / (2 * _P90)
        residuals = [
            math.log(measured / getattr(predicted, name)) - centre
            for item, predicted in zip(observations, times, strict=True)
            if (measured := getattr(item, name)) is not None
        ]
        total += _shared(residuals, width, NOISE)
    for item, predicted in zip(observations, times, strict=True):
        if item.itl_p99 is not None and item.itl is not None:
            # As a multiple of the mean gap: how wide calibration is does not matter then.
            ratio = (item.itl_p99 / item.itl) / (predicted.itl_p99 / predicted.itl)
            total += (math.log(ratio) / TAIL_NOISE) ** 2
        if item.queue is not None:
            ratio = (item.queue + QUEUE_FLOOR) / (predicted.queue + QUEUE_FLOOR)
            total += (math.log(ratio) / TAIL_NOISE) ** 2
    return total


def _shared(residuals: Sequence[float], shared: float, own: float) -> float:
    """r' C⁻¹ r of C = own² I + shared² J, by Sherman and Morrison's formula."""
    squares = sum(value * value for value in residuals)
    part = shared**2 / (own**2 + len(residuals) * shared**2)
    return (squares - part * sum(residuals) ** 2) / own**2
