"""Writes the validation report: VALIDATION.md for people, validation.json for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from engine.simulator.validation.calibration import read_folds
from engine.simulator.validation.collectives import collectives_section
from engine.simulator.validation.findings import FINDINGS
from engine.simulator.validation.peers import PeerScore, compare
from engine.simulator.validation.scoring import Errors, Scores
from engine.simulator.validation.service_report import services_document, services_section
from engine.simulator.validation.service_scores import ServiceScore
from engine.simulator.validation.tables import (
    GoalLine,
    Line,
    by_class,
    by_engine,
    by_format,
    by_kind,
    by_segment,
    coverage,
    goal_lines,
    lines,
    worst_cells,
    worst_rows,
)
from engine.simulator.validation.this_machine import machine_section, read_machine

FOLDER = Path(__file__).parent
REPORT, DATA = FOLDER / "VALIDATION.md", FOLDER / "validation.json"
_WORST_CELLS = 12
_WORST_ROWS = 20
_TABLES = (
    ("kind of number", by_kind, 1),
    ("segment", by_segment, 1),
    ("class of device", by_class, 1),
    ("number formats", by_format, 5),
    ("engine", by_engine, 1),
)


def write_report(scores: Scores, services: Sequence[ServiceScore]) -> None:
    """Write both files. The same rows, runs and values give the same bytes."""
    REPORT.write_text(markdown(scores, services), encoding="utf-8")
    DATA.write_text(to_json(scores, services), encoding="utf-8")


def markdown(scores: Scores, services: Sequence[ServiceScore] = ()) -> str:
    """The report as text; without services it has no sections of what we measured or served."""
    peers, compared = compare(scores)
    parts = [
        _head(scores),
        _goals(goal_lines(scores), scores),
        *(_table(title, lines(scores, key, fewest)) for title, key, fewest in _TABLES),
        _peers(peers, compared),
        collectives_section(),
        *([services_section(services), machine_section(read_machine())] if services else []),
        _missed(scores),
        _rows(scores),
    ]
    return "\n\n".join(parts) + "\n"


def _head(scores: Scores) -> str:
    total = len(scores.plans) + len(scores.unusable)
    reasons = "\n".join(f"- {count}: {reason}" for reason, count in scores.reasons.items())
    assumed = sum(bool(plan.case.assumed) for plan in scores.plans)
    half = read_folds()[0]
    share = int(scores.half_held_out.sum())
    return f"""# Predicted against measured

Written by `make validate`; do not edit. {len(scores.plans):,} of {total:,} published rows are \
predicted. Not usable:

{reasons}

In {assumed:,} rows something that the source does not state is assumed (see `cases.py`).

Columns: **roofline** is the ideal time; **shipped** uses the program's calibrated values, which \
were fitted to these rows; **unseen** predicts each row by one of five calibrations, the one that \
never saw the row's device; **held-out half** are rows of the {len(half.held_out)} devices \
({share:,} rows) that a calibration on the other half of the devices never saw. Devices are dealt \
out by number of rows within their segment, before any result is known (`splitting.py`). Goals \
are judged on unseen rows. The folds guard the fitted numbers; the form of the model and the first \
guesses of some engines were chosen with these rows in view, so other measurements may fare \
somewhat worse. Errors are |predicted / measured - 1|: median, 90th percentile."""


def _goals(goals: Sequence[GoalLine], scores: Scores) -> str:
    rows = [
        f"| {item.goal.name} | {item.line.unseen.rows:,} | {item.goal.error:.0%} | "
        f"**{_share(item.line.unseen.median)}** {'met' if item.met else 'missed'} | "
        f"{_held_out(item.line)} | {_share(item.line.shipped.median)} | "
        f"{_share(item.line.roofline.median)} |"
        for item in goals
    ]
    share, good = coverage(scores)
    return "\n".join(
        [
            "## Goals (median error)",
            "",
            "| goal | rows | at most | unseen | held-out half | shipped | roofline |",
            "|-|-|-|-|-|-|-|",
            *rows,
            "",
            f"The p10-p90 interval, from residuals of other folds, holds {share:.1%} of the rows "
            f"(goal 80% ± 5): {'met' if good else 'missed'}.",
        ]
    )


def _table(title: str, found: Sequence[Line]) -> str:
    rows = [
        f"| {item.name} | {item.unseen.rows:,} | {_both(item.roofline)} | {_both(item.shipped)} | "
        f"{_both(item.unseen)} | {item.unseen.bias:+.0%} | {_held_out(item)} | "
        f"{item.coverage:.0%} |"
        for item in found
    ]
    return "\n".join(
        [
            f"## By {title}",
            "",
            f"| {title} | rows | roofline | shipped | unseen | bias | held-out half | in p10-p90 |",
            "|-|-|-|-|-|-|-|-|",
            *rows,
        ]
    )


def _peers(peers: Sequence[PeerScore], compared: int) -> str:
    rows = [
        f"| {item.tool} | {item.rows} | {_share(item.error)} | {_share(item.ours_unseen)} | "
        f"{_share(item.ours_shipped)} | {'yes' if item.closer else 'no'} |"
        for item in peers
    ]
    behind = [item for item in peers if not item.closer]
    why = (
        "Closer than every tool."
        if not behind
        else "Where a tool is closer: its kernel tables were measured on this very device and "
        "engine, ours had to predict a device it never saw; by the shipped values "
        + (
            "we are closer there too."
            if all(item.ours_shipped < item.error for item in behind)
            else "the tool stays closer."
        )
    )
    return "\n".join(
        [
            "## Beside other tools",
            "",
            f"The same {compared} measured rows (16-bit Llama models on A100 and H100, prompts "
            "from 512 to 2,048), median errors over the rows that a tool covers; a tool's values "
            "are interpolated between the two prompt lengths it was run for.",
            "",
            "| tool | rows | its error | ours, unseen | ours, shipped | closer |",
            "|-|-|-|-|-|-|",
            *rows,
            "",
            why,
        ]
    )


def _missed(scores: Scores) -> str:
    text = ["## What is missed, and why", ""]
    for item in goal_lines(scores):
        if item.met and item.met_on_half:
            continue
        text += [
            f"**{item.goal.name}**, at most {item.goal.error:.0%}: unseen "
            f"{_share(item.line.unseen.median)}, held-out half {_held_out(item.line)}. The groups "
            "that cost most:",
            "",
            "| group | rows | shipped | unseen | bias |",
            "|-|-|-|-|-|",
            *(
                f"| {cell.name} | {cell.unseen.rows} | {_share(cell.shipped.median)} | "
                f"{_share(cell.unseen.median)} | {cell.unseen.bias:+.0%} |"
                for cell in worst_cells(scores, item.goal.metrics, _WORST_CELLS)
            ),
            "",
        ]
    text += ["What the model leaves out, and what would close it:", ""]
    text += [f"- **{title}.** {what}" for title, what in FINDINGS]
    return "\n".join(text)


def _rows(scores: Scores) -> str:
    found = [
        "## The worst rows (unseen)",
        "",
        "| row | engine | device | model | metric | measured | unseen | shipped |",
        "|-|-|-|-|-|-|-|-|",
    ]
    for index in worst_rows(scores, _WORST_ROWS):
        plan = scores.plans[index]
        row = plan.case.measurement
        found.append(
            f"| {row.row_id} | {row.framework} | {row.devices} x {row.device} | {row.model} | "
            f"{row.metric} | {row.value:.4g} | {scores.unseen[index]:.4g} | "
            f"{scores.shipped[index]:.4g} |"
        )
    return "\n".join(found)


def _share(value: float) -> str:
    return f"{value:.1%}"


def _both(errors: Errors) -> str:
    return f"{errors.median:.1%}, {errors.p90:.0%}"


def _held_out(item: Line) -> str:
    if item.held_out is None:
        return "-"
    return f"{item.held_out.median:.1%} of {item.held_out.rows:,}"


def to_json(scores: Scores, services: Sequence[ServiceScore]) -> str:
    """The report as JSON: goals, tables, peers, services and every row's predictions."""
    peers, compared = compare(scores)
    share, good = coverage(scores)
    document = {
        "usable": len(scores.plans),
        "not_usable": scores.reasons,
        "goals": [
            {
                "name": item.goal.name,
                "at_most": item.goal.error,
                "met": item.met,
                **_line(item.line),
            }
            for item in goal_lines(scores)
        ],
        "coverage": {"share": round(share, 4), "met": good},
        "tables": {
            title: [{"name": item.name, **_line(item)} for item in lines(scores, key, fewest)]
            for title, key, fewest in _TABLES
        },
        "peers": {
            "rows": compared,
            "tools": [
                {
                    "tool": item.tool,
                    "rows": item.rows,
                    "error": round(item.error, 4),
                    "ours_unseen": round(item.ours_unseen, 4),
                    "ours_shipped": round(item.ours_shipped, 4),
                }
                for item in peers
            ],
        },
        "serving": services_document(services),
        "findings": [{"title": title, "text": what} for title, what in FINDINGS],
        "columns": ["row_id", "metric", "kind", "measured", "roofline", "shipped", "unseen"],
        "rows": [
            [
                plan.case.measurement.row_id,
                plan.case.measurement.metric,
                by_kind(plan),
                *(
                    float(f"{float(column[index]):.4g}")
                    for column in (scores.measured, scores.roofline, scores.shipped, scores.unseen)
                ),
            ]
            for index, plan in enumerate(scores.plans)
        ],
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.replace('],["', '],\n["') + "\n"


def _line(item: Line) -> dict[str, object]:
    named = {"roofline": item.roofline, "shipped": item.shipped, "unseen": item.unseen}
    found: dict[str, object] = {"rows": item.unseen.rows, "coverage": round(item.coverage, 4)}
    for name, errors in named.items():
        found[name] = _errors(errors)
    found["held_out_half"] = None if item.held_out is None else _errors(item.held_out)
    return found


def _errors(errors: Errors) -> dict[str, float]:
    return {
        "rows": errors.rows,
        "median": round(errors.median, 4),
        "p90": round(errors.p90, 4),
        "bias": round(errors.bias, 4),
    }
