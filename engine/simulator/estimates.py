"""Typical times of a batch with the interval that held eight of ten measurements of their kind."""

from __future__ import annotations

from dataclasses import dataclass

from engine.simulator.intervals import Metric, interval
from engine.simulator.run import BatchRun


@dataclass(frozen=True, slots=True)
class Estimate:
    """A typical value and its 10th and 90th percentile, from the residuals of calibration."""

    value: float
    p10: float
    p90: float


@dataclass(frozen=True, slots=True)
class Estimates:
    """A run at typical speed: seconds, and tokens/s; ``tpot`` is None with one output token.

    Residuals are of plain batches: for features and many devices the intervals are the same,
    though less was measured there.
    """

    run: BatchRun
    ttft: Estimate
    tpot: Estimate | None
    e2e: Estimate
    tokens_per_s: Estimate


def estimates(run: BatchRun) -> Estimates:
    """The run's times with intervals of its kind and segment of devices."""
    hardware = run.deployment.hardware_spec
    alone = run.batch.requests == 1

    def estimate(metric: Metric, value: float) -> Estimate:
        low, high = interval(metric, hardware)
        return Estimate(value, value * low, value * high)

    step = Metric.DECODE if alone else Metric.BATCHED
    total = Metric.LATENCY if alone else Metric.BATCHED
    whole, tokens = estimate(total, run.e2e), run.tokens_per_s
    return Estimates(
        run,
        estimate(Metric.TTFT, run.ttft),
        None if run.tpot is None else estimate(step, run.tpot),
        whole,
        Estimate(tokens, tokens * run.e2e / whole.p90, tokens * run.e2e / whole.p10),
    )
