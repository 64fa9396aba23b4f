"""A measurement for people: one table, what failed, and the diagnosis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.catalog.units import si_label, significant, time_label
from engine.measuring.comparison import Compared, Comparison
from engine.measuring.point import Point, Spread
from engine.measuring.report import Report
from engine.simulator.diagnosis.diagnose import Cause, Diagnosis

MOST_CAUSES = 4
MOST_REMEDIES = 4
NONE = "—"
HEADINGS = ("prompt", "at once", "answers", "TTFT p50", "p99", "ITL p50", "p99", "gap p99",
            "tokens/s")  # fmt: skip
PREDICTED_HEADINGS = ("prompt", "at once", "TTFT", "typical", "ideal", "ITL", "typical", "ideal",
                      "MBU", "MFU", "judged")  # fmt: skip


def report_text(report: Report) -> str:
    """The whole report as lines."""
    lines = [
        f"{report.model} at {report.url} ({report.kind}), {report.started}",
        "",
        "measured",
        *_table(HEADINGS, [measured_row(point) for point in report.points]),
    ]
    failures = failure_lines(report.points)
    if failures:
        lines += ["", "failed", *(f"  {line}" for line in failures)]
    if report.comparison is None:
        lines += ["", f"not compared with a prediction: {report.why_not}"]
    else:
        lines += ["", *_compared(report.comparison)]
    return "\n".join([*lines, "", *(f"- {note}" for note in report.notes)])


def measured_row(point: Point) -> tuple[str, ...]:
    """The cells of a point under ``HEADINGS``."""
    tokens = point.prompt_tokens
    return (
        f"~{point.wanted_tokens:,}" if tokens is None else f"{tokens:,.0f}",
        f"{point.concurrency:,}",
        f"{len(point.good):,}/{point.planned:,}",
        *_two(point.ttft),
        *_two(point.itl),
        seconds(point.gaps and point.gaps.p99),
        NONE if point.tokens_per_s is None else significant(point.tokens_per_s),
    )


def predicted_row(item: Compared) -> tuple[str, ...]:
    """The cells of a point under ``PREDICTED_HEADINGS``: MBU of decode, MFU of prefill."""
    start, stream = item.found.start, item.found.stream
    shares = {dot.phase: dot for dot in item.dots}
    decode, prefill = shares.get("decode"), shares.get("prefill")
    return (
        f"{item.cell.prompt_tokens:,}",
        f"{item.cell.batch:,}",
        seconds(start.measured),
        seconds(start.typical),
        seconds(start.ideal),
        seconds(stream.measured),
        seconds(stream.typical),
        seconds(stream.ideal),
        NONE if decode is None else f"{decode.mbu:.1%}",
        NONE if prefill is None else f"{prefill.mfu:.1%}",
        item.found.verdict,
    )


def failure_lines(points: Sequence[Point]) -> list[str]:
    """One line for each kind of failure of each point."""
    return [
        f"{point.wanted_tokens:,} prompt tokens, {point.concurrency:,} at once: "
        f"{many:,} × {kind} ({point.failure_details[kind]})"
        for point in points
        for kind, many in point.failures.items()
    ]


def seconds(value: float | None) -> str:
    return NONE if value is None or math.isnan(value) else time_label(value)


def deployment_words(comparison: Comparison) -> str:
    """What was predicted, and on what: the reader sees whether that is what runs."""
    cell = comparison.base
    many = "" if cell.devices == 1 else f"{cell.devices} × "
    return (
        f"{cell.model_spec.id} in {cell.weights}, KV cache in {cell.kv}, on "
        f"{many}{cell.hardware_spec.id}"
    )


def roofline_words(comparison: Comparison) -> str:
    curve = comparison.curve
    return (
        f"one device reads {si_label(curve.bandwidth, 'B/s')} and computes "
        f"{si_label(curve.peak, 'FLOP/s')} at most; they meet at "
        f"{significant(curve.ridge_point)} FLOP/B"
    )


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a diagnosis: what it says first, and its list."""

    title: str
    lines: tuple[str, ...] = ()


def diagnosis_parts(found: Diagnosis, first: Compared) -> tuple[Part, Part, Part]:
    """The verdict on the point that lies farthest from its prediction, causes, and remedies."""
    sure = "" if found.sure else " (unsure: these measurements do not tell the causes apart)"
    seen = found.observations[0]
    verdict = (
        f"At {first.cell.prompt_tokens:,} prompt tokens and {first.cell.batch:,} at once, where "
        f"times are farthest above the typical ones: {found.verdict}{sure}. Most of the answer's "
        f"time passes at the {found.most_time}."
    )
    helpful = tuple(
        f"{remedy.words}: saves {time_label(remedy.saving(seen))} of {seen.measured_part}"
        f"{'' if remedy.fits else '; does not fit'}"
        for remedy in found.remedies[:MOST_REMEDIES]
    )
    causes = tuple(map(cause_words, found.causes[:MOST_CAUSES]))
    return Part(verdict), Part("Likely causes", causes), Part("What would help, predicted", helpful)


def cause_words(cause: Cause) -> str:
    weight = cause.probability if cause.share is None else cause.share
    kind = "probability" if cause.share is None else "of the usual time"
    return f"{cause.name} ({weight:.0%} {kind}): {cause.words}; {cause.evidence}"


def _compared(comparison: Comparison) -> list[str]:
    rows = [predicted_row(item) for item in comparison.points]
    lines = [
        f"measured beside predicted: {deployment_words(comparison)}",
        *_table(PREDICTED_HEADINGS, rows),
        f"  the roofline: {roofline_words(comparison)}",
    ]
    if comparison.diagnosis is None or comparison.explained is None:
        return [*lines, "", "no diagnosis: no point has enough whole answers"]
    lines.append("")
    for part in diagnosis_parts(comparison.diagnosis, comparison.explained):
        lines += [part.title, *(f"  {line}" for line in part.lines)]
    return lines


def _two(spread: Spread | None) -> tuple[str, str]:
    return (NONE, NONE) if spread is None else (time_label(spread.p50), time_label(spread.p99))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in (headings, *rows)
    ]
