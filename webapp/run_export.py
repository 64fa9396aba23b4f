"""A run in forms for other programs: its JSON document, CSV of its steps and of its tokens, and a
trace in the Trace Event Format of Chrome, which Perfetto (ui.perfetto.dev) opens.

Texts of people and of the model go into quoted CSV cells; one that a spreadsheet would take for a
formula gets an apostrophe in front, as OWASP's notes on CSV injection advise.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Literal

from webapp import json_codec
from webapp.schemas.live_events import StepEvent, TokenEvent
from webapp.schemas.saved_run import SavedRun
from webapp.trace_events import trace

Form = Literal["json", "steps.csv", "tokens.csv", "trace"]

_CSV = "text/csv; charset=utf-8"
FILES: dict[Form, tuple[str, str]] = {
    "json": ("first-token-run.json", "application/json"),
    "steps.csv": ("first-token-steps.csv", _CSV),
    "tokens.csv": ("first-token-tokens.csv", _CSV),
    "trace": ("first-token-run.trace.json", "application/json"),
}
"""Of each form the name of the file and its media type."""

STEP_COLUMNS = (
    "step", "phase", "step_phase", "batch", "tokens", "start_ms", "time_ms", "predicted_ms",
    "typical_ms", "typical_p10_ms", "typical_p90_ms", "flops", "bytes", "intensity", "bound",
    "own_kv_tokens", "own_kv_blocks", "kv_bytes", "kv_blocks_used", "kv_blocks_total", "running",
    "waiting",
)  # fmt: skip
TOKEN_COLUMNS = (
    "index", "id", "piece", "text", "logprob", "time_ms", "itl_ms", "detokenize_ms",
)  # fmt: skip
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def export(run: SavedRun, form: Form) -> bytes:
    """The run in that form, as UTF-8."""
    match form:
        case "json":
            text = json_codec.dumps(run.model_dump())
        case "steps.csv":
            steps = [event for event in run.events if isinstance(event, StepEvent)]
            text = _table(STEP_COLUMNS, steps)
        case "tokens.csv":
            tokens = [event for event in run.events if isinstance(event, TokenEvent)]
            text = _table(TOKEN_COLUMNS, tokens)
        case "trace":
            text = json_codec.dumps(trace(run))
    return text.encode()


def _table(columns: Sequence[str], events: Iterable[StepEvent | TokenEvent]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(columns)
    for event in events:
        writer.writerow([_cell(getattr(event, column)) for column in columns])
    return out.getvalue()


def _cell(value: str | float | None) -> str | float:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
