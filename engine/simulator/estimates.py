"""Typical times of a batch with the interval that held eight of ten measurements of their kind."""

from __future__ import annotations

from dataclasses import dataclass

from engine.simulator.intervals import Metric, interval, whole_factors
from engine.simulator.run import BatchRun

_OF_PARTS = (
    "p10 and p90 take the time to the first token and that of all further tokens at their own p10 "
    "and p90 at once, and add them: rather too wide than too narrow"
)
_OF_WHOLE = "p10 and p90 are those of whole batches that were measured"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A typical value and its 10th and 90th percentile, from the residuals of calibration."""

    value: float
    p10: float
    p90: float


@dataclass(frozen=True, slots=True)
class Estimates:
    """A run at typical speed: seconds, and tokens/s; ``tpot`` is None with one output token.

    The bounds of ``e2e`` are those of its parts, added, or of whole answers that were measured,
    whichever lie closer together; ``tokens_per_s`` follows from it; ``whole_words`` says which.
    Residuals are of plain batches: for features and many devices the intervals are the same,
    though less was measured there.
    """

    run: BatchRun
    ttft: Estimate
    tpot: Estimate | None
    e2e: Estimate
    tokens_per_s: Estimate
    whole_words: str


def estimates(run: BatchRun) -> Estimates:
    """The run's times with intervals of its kind and segment of devices."""
    hardware = run.deployment.hardware_spec
    alone = run.batch.requests == 1

    first = interval(Metric.TTFT, hardware)
    step = interval(Metric.DECODE if alone else Metric.BATCHED, hardware)
    measured = interval(Metric.LATENCY if alone else Metric.BATCHED, hardware)
    share = (run.e2e - run.decode_time) / run.e2e
    whole = whole_factors(share, first, step, measured)
    low, high = float(whole.low), float(whole.high)
    return Estimates(
        run,
        _stretched(run.ttft, first),
        None if run.tpot is None else _stretched(run.tpot, step),
        _stretched(run.e2e, (low, high)),
        _stretched(run.tokens_per_s, (1 / high, 1 / low)),
        _OF_PARTS if whole.of_parts else _OF_WHOLE,
    )


def _stretched(value: float, factors: tuple[float, float]) -> Estimate:
    low, high = factors
    return Estimate(value, value * low, value * high)
