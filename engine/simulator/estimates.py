"""Typical times of a batch with the interval that held eight of ten measurements of their kind."""

from __future__ import annotations

from dataclasses import dataclass

from engine.simulator.intervals import Metric, interval
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

    def estimate(metric: Metric, value: float) -> Estimate:
        low, high = interval(metric, hardware)
        return Estimate(value, value * low, value * high)

    step = Metric.DECODE if alone else Metric.BATCHED
    start = estimate(Metric.TTFT, run.e2e - run.decode_time)
    stream = estimate(step, run.decode_time)
    parts = Estimate(run.e2e, start.p10 + stream.p10, start.p90 + stream.p90)
    measured = estimate(Metric.LATENCY if alone else Metric.BATCHED, run.e2e)
    of_parts = parts.p90 * measured.p10 <= measured.p90 * parts.p10
    whole, tokens = parts if of_parts else measured, run.tokens_per_s
    return Estimates(
        run,
        estimate(Metric.TTFT, run.ttft),
        None if run.tpot is None else estimate(step, run.tpot),
        whole,
        Estimate(tokens, tokens * run.e2e / whole.p90, tokens * run.e2e / whole.p10),
        _OF_PARTS if of_parts else _OF_WHOLE,
    )
