"""Kinds of measured numbers, and the goals for each."""

from __future__ import annotations

from dataclasses import dataclass

from engine.simulator.intervals import Metric
from engine.simulator.validation.measurement import Measurement

COVERAGE = (0.75, 0.85)
"""The share of rows that the p10-p90 interval should hold."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The median absolute error, as a share, that rows not calibrated on should stay within."""

    name: str
    metrics: frozenset[Metric]
    error: float


GOALS = (
    Goal("batch-1 decode", frozenset({Metric.DECODE}), 0.12),
    Goal("prefill and TTFT", frozenset({Metric.PREFILL, Metric.TTFT}), 0.15),
    Goal("batched TPOT and E2E", frozenset({Metric.BATCHED}), 0.15),
    Goal("maximum-load throughput", frozenset({Metric.MAX_LOAD}), 0.25),
)

NAMES = {
    Metric.DECODE: "decode of one sequence",
    Metric.PREFILL: "prefill rate",
    Metric.TTFT: "TTFT",
    Metric.LATENCY: "E2E of one sequence",
    Metric.BATCHED: "TPOT and E2E of batches",
    Metric.MAX_LOAD: "throughput at maximum load",
    Metric.LOADED: "throughput at a given load",
}


def kind_of(row: Measurement) -> Metric:
    """The kind of a row's number."""
    alone = row.batch in ("1", "") and row.batch_kind in ("static", "concurrency")
    if row.metric == "prefill_tok_s":
        return Metric.PREFILL
    if row.metric == "ttft_ms":
        return Metric.TTFT
    if row.metric == "decode_tok_s_per_seq" or (row.metric == "tpot_ms" and alone):
        return Metric.DECODE
    if row.metric in ("tpot_ms", "e2e_latency_ms"):
        return Metric.LATENCY if alone else Metric.BATCHED
    if row.batch_kind in ("concurrency", "request_rate_qps"):
        return Metric.LATENCY if alone else Metric.LOADED
    if row.batch_kind == "static":
        return Metric.LATENCY if alone else Metric.BATCHED
    return Metric.MAX_LOAD
