"""A measurement as JSON: every number with its unit in the name, measured and predicted apart."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import cast

from engine.measuring.comparison import Compared, Comparison
from engine.measuring.point import Point, Spread
from engine.measuring.report import Report
from engine.simulator.diagnosis.document import diagnosis_document
from engine.simulator.quantity import Document
from engine.simulator.search.document import cell_document

SCHEMA = "firsttoken.measurement"
VERSION = 1


def report_document(report: Report) -> Document:
    """The report as JSON values. Times in s, memory in B; ``null`` where nothing was measured."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "url": report.url,
        "model": report.model,
        "kind": report.kind,
        "started": report.started,
        "plan": _plan(report),
        "requests": report.requests,
        "failed": report.failed,
        "points": [_point(point, report.comparison) for point in report.points],
        "comparison": None if report.comparison is None else _comparison(report.comparison),
        "not_compared_because": report.why_not or None,
        "notes": report.notes,
    }


def _plan(report: Report) -> Document:
    plan = report.plan
    return {
        "prompt_tokens": list(plan.prompt_tokens),
        "concurrency": list(plan.concurrency),
        "output_tokens": plan.output_tokens,
        "same_prompt": plan.same_prompt,
        "seed": plan.seed,
    }


def _point(point: Point, comparison: Comparison | None) -> Document:
    beside = None
    if comparison is not None:
        beside = next((item for item in comparison.points if item.point is point), None)
    return {
        "wanted_prompt_tokens": point.wanted_tokens,
        "concurrency": point.concurrency,
        "planned_requests": point.planned,
        "requests": len(point.replies),
        "whole_answers": len(point.good),
        "failures": point.failures,
        "failure_details": point.failure_details,
        "measured": {
            "kind": "measured",
            "prompt_tokens": point.prompt_tokens,
            "output_tokens": point.output_tokens,
            "cached_tokens": point.cached_tokens,
            "tokens_counted_by_server": point.counted,
            "tokens_a_read": point.tokens_a_read,
            "ttft_s": _spread(point.ttft),
            "itl_s": _spread(point.itl),
            "gap_s": _spread(point.gaps),
            "latency_s": _spread(point.latency),
            "connect_s": _spread(point.connect),
            "tokens_per_s": point.tokens_per_s,
            "tokens_per_s_start_and_end_included": point.whole_tokens_per_s,
            "server_timings": point.server_timings,
        },
        "predicted": None if beside is None else _predicted(beside),
    }


def _spread(spread: Spread | None) -> Document | None:
    return None if spread is None else cast("Document", asdict(spread))


def _predicted(item: Compared) -> Document:
    start, stream = item.found.start, item.found.stream
    return {
        "kind": "predicted",
        "ttft_s": {"ideal": start.ideal, "typical": start.typical, "p10": start.p10,
                   "p90": start.p90},
        "itl_s": {name: _number(value) for name, value in (
            ("ideal", stream.ideal), ("typical", stream.typical), ("p10", stream.p10),
            ("p90", stream.p90))},
        "tokens_per_s": {"ideal": item.ideal.tokens_per_s, "typical": item.typical.tokens_per_s},
        "fits": item.typical.fits,
        "verdict": item.found.verdict,
        "roofline": [
            {
                "phase": dot.phase,
                "sequences": dot.sequences,
                "intensity_flop_per_byte": dot.intensity,
                "measured_flop_per_s": dot.measured,
                "typical_flop_per_s": dot.typical,
                "measured_bytes_per_s": dot.bandwidth,
                "mbu": dot.mbu,
                "mfu": dot.mfu,
            }
            for dot in item.dots
        ],
    }  # fmt: skip


def _comparison(comparison: Comparison) -> Document:
    found, first = comparison.diagnosis, comparison.explained
    return {
        "cell": cell_document(comparison.base),
        "roofline": {
            "bandwidth_bytes_per_s": comparison.curve.bandwidth,
            "peak_flop_per_s": comparison.curve.peak,
            "ridge_flop_per_byte": comparison.curve.ridge_point,
        },
        "explained": None
        if first is None
        else {
            "wanted_prompt_tokens": first.point.wanted_tokens,
            "concurrency": first.point.concurrency,
        },
        "diagnosis": None if found is None else diagnosis_document(found),
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
