"""A measurement as one HTML file that needs nothing else: no script, no font, no other address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from engine.catalog.units import si_label, significant
from engine.measuring.comparison import Comparison
from engine.measuring.report import Report
from engine.measuring.roofline_picture import roofline_picture
from engine.measuring.text import (
    HEADINGS,
    PREDICTED_HEADINGS,
    deployment_words,
    diagnosis_parts,
    failure_lines,
    measured_row,
    predicted_row,
    roofline_words,
)

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2227; --paper: #fbfaf7; --line: #cfccc4;
  --soft: #5d646b; --prefill: #a3540c; --decode: #12618f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e4df; --paper: #16191c; --line: #3b4147;
  --soft: #a3abb2; --prefill: #f0a35c; --decode: #74bde8; } }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h3 { font-size: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; } th { color: var(--soft); font-weight: 600; }
svg { width: 100%; min-width: 34rem; max-width: 44rem; height: auto; }
svg text { font-size: 12px; fill: var(--soft); }
.grid { stroke: var(--line); stroke-width: .6; } .roof { fill: none; stroke: var(--ink);
  stroke-width: 2; } .prefill { --own: var(--prefill); } .decode { --own: var(--decode); }
.measured { fill: var(--own); } .predicted { fill: none; stroke: var(--own); stroke-width: 2; }
.legend svg { width: 14px; min-width: 0; height: 14px; vertical-align: -2px; }
p, li { max-width: 44rem; overflow-wrap: anywhere; } .soft { color: var(--soft); }
"""
_ROOFLINE_HEADINGS = (
    "step",
    "prompt",
    "at once",
    "FLOP/B",
    "measured",
    "typical",
    "read",
    "MBU",
    "MFU",
)
_LEGEND = (
    '<p class="legend"><svg viewBox="0 0 14 14" aria-hidden="true"><rect class="prefill measured" '
    'x="2" y="2" width="10" height="10"/></svg> prefill, '
    '<svg viewBox="0 0 14 14" aria-hidden="true"><circle class="decode measured" cx="7" cy="7" '
    'r="5"/></svg> decode; filled: measured, outline: predicted (typical); line: the roofline</p>'
)


def report_page(report: Report) -> str:
    """The whole report as an HTML document."""
    title = f"{report.model}: measured"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{escape(title)}</h1>",
        _paragraph(f"At {report.url} ({report.kind}), {report.started}", "soft"),
        *_cautions(report),
        "<h2>Measured</h2>",
        _table("Measured", HEADINGS, [measured_row(point) for point in report.points]),
        *_section("Failed", failure_lines(report.points)),
        *_compared(report),
        *_section("How this was measured", report.notes),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _cautions(report: Report) -> Iterable[str]:
    return _section("Before you read on", report.cautions)


def _compared(report: Report) -> Iterable[str]:
    found = report.comparison
    if found is None:
        yield "<h2>Predicted</h2>"
        yield _paragraph(f"Not compared with a prediction: {report.why_not}.")
        return
    yield "<h2>Measured beside predicted</h2>"
    yield _paragraph(f"Predicted for {deployment_words(found)}.")
    rows = [predicted_row(item) for item in found.points]
    yield _table("Measured beside predicted", PREDICTED_HEADINGS, rows)
    yield "<h2>On the roofline</h2>"
    words = roofline_words(found)
    # Only the first letter: units keep theirs.
    yield _paragraph(f"{words[0].upper()}{words[1:]}.")
    yield f"{_scroll('Roofline')}{roofline_picture(found)}</div>{_LEGEND}"
    yield _table("Steps on the roofline", _ROOFLINE_HEADINGS, _dots(found))
    yield "<h2>Diagnosis</h2>"
    if found.diagnosis is None or found.explained is None:
        yield _paragraph("No point has enough whole answers.")
        return
    verdict, *parts = diagnosis_parts(found.diagnosis, found.explained)
    yield _paragraph(verdict.title)
    for part in parts:
        yield f"<h3>{escape(part.title)}</h3>{_list(part.lines)}"


def _dots(found: Comparison) -> list[tuple[str, ...]]:
    return [
        (
            dot.phase,
            f"{item.cell.prompt_tokens:,}",
            f"{dot.sequences:,}",
            significant(dot.intensity),
            si_label(dot.measured, "FLOP/s"),
            si_label(dot.typical, "FLOP/s"),
            si_label(dot.bandwidth, "B/s"),
            f"{dot.mbu:.1%}",
            f"{dot.mfu:.1%}",
        )
        for item in found.points
        for dot in item.dots
    ]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    return [f"<h2>{escape(title)}</h2>{_list(lines)}"]


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _paragraph(words: str, style: str | None = None) -> str:
    kind = f' class="{style}"' if style else ""
    return f"<p{kind}>{escape(words)}</p>"


def _table(label: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    rows_of = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f"{_scroll(label)}<table>{rows_of}</table></div>"


def _scroll(label: str) -> str:
    """The start of a box that scrolls sideways, by keyboard too."""
    return f'<div class="scroll" role="group" tabindex="0" aria-label="{escape(label)}">'
