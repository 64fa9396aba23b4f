"""The scores as tables for people, and as JSON that later runs add lanes to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engine.catalog.units import si_label
from engine.simulator.validation.this_machine import GOAL
from tests.benchmarks.machine.grid import Cell
from tests.benchmarks.machine.scoring import Score, as_document, drift_free_error, median_error

_KINDS = {
    "prefill": lambda score: score.kind == "prefill",
    "decode, batch 1": lambda score: score.kind == "decode" and score.batch == 1,
    "decode, batch 3–32": lambda score: score.kind == "decode" and score.batch > 1,
}


@dataclass(frozen=True, slots=True)
class LaneRun:
    """One lane's scores. ``calibrated`` and ``scored`` are dates; the two bandwidths in B/s are of
    those times: they say how much the machine itself changed in between."""

    lane: str
    model: str
    calibrated: str
    scored: str
    bandwidth_calibrated: float
    bandwidth_scored: float
    machine: Mapping[str, Any]
    scores: tuple[Score, ...]

    @property
    def median_error(self) -> float:
        return median_error(self.scores)

    def to_document(self) -> dict[str, object]:
        document: dict[str, object] = {
            item.name: getattr(self, item.name) for item in fields(self) if item.name != "scores"
        }
        return document | {
            "median_error": self.median_error,
            "scores": [as_document(score) for score in self.scores],
        }


def read_runs(path: Path) -> dict[str, LaneRun]:
    """The lanes of an earlier run, by name; none where there is no such file."""
    if not path.exists():
        return {}
    runs = {}
    names = {item.name for item in fields(Score)}
    for entry in json.loads(path.read_text(encoding="utf-8"))["lanes"]:
        scores = tuple(
            Score(**{key: value for key, value in each.items() if key in names})
            for each in entry["scores"]
        )
        known = {item.name: entry[item.name] for item in fields(LaneRun) if item.name != "scores"}
        runs[entry["lane"]] = LaneRun(scores=scores, **known)
    return runs


def to_json(runs: Sequence[LaneRun]) -> str:
    return json.dumps({"lanes": [run.to_document() for run in runs]}, indent=1, allow_nan=False)


def to_markdown(runs: Sequence[LaneRun]) -> str:
    """All tables: a summary by lane and kind of cell, then every cell."""
    everything = [score for run in runs for score in run.scores]
    above = sum(score.roof_share > 1 for score in everything)
    inside = sum(score.held for score in everything) / len(everything)
    return "\n".join(
        [
            *_heading(runs[0]),
            "",
            *_summary(runs, everything),
            "",
            "The last column is not the score. It divides a lane's predictions by one factor, the "
            "median of typical over measured: what is left is the error of the model, and the "
            "factor is how much faster or slower the machine was when the lane was calibrated.",
            "",
            f"Of all {len(everything)} medians {inside:.0%} were within p10 and p90, and {above} "
            "above the roofline.",
            "",
            *_drift(runs),
            "",
            *(line for run in runs for line in _cells(run)),
        ]
    )


def _heading(run: LaneRun) -> list[str]:
    machine = run.machine
    rates = ", ".join(f"{k} {si_label(v, 'FLOP/s')}" for k, v in machine["flops_per_s"].items())
    return [
        "# Predictions for this machine",
        "",
        f"{run.model} on {machine['device_name']} ({machine['device']}, {machine['threads']} "
        f"threads), torch {machine['torch']}. Measured by `python -m tests.benchmarks.machine` in "
        "another process, at another time and at other sizes than the calibration "
        "(`python -m engine calibrate --lanes`) that the predictions are made from.",
        "",
        "Measured: the median of a decode step, or of all steps of a prompt up to its first token, "
        "as the engine's events tell them. Ideal: the roofline "
        f"({si_label(machine['bandwidth'], 'B/s')}; {rates}) at the rate of the arithmetic that "
        "each step uses. Typical: from the lane's calibration, with the interval of eight of ten "
        f"runs. Error: typical over measured, less one; the goal is a median of {GOAL:.0%}.",
    ]


def _summary(runs: Sequence[LaneRun], everything: Sequence[Score]) -> list[str]:
    head = ["lane", *_KINDS, "all", "", "with the machine's drift taken out"]
    rows = [[*_row(run.lane, run.scores), f"{drift_free_error(run.scores):.1%}"] for run in runs]
    return _table([head, *rows, [*_row("all lanes", everything), "—"]])


def _row(name: str, scores: Sequence[Score]) -> list[str]:
    def cell(choose: Callable[[Score], bool]) -> str:
        chosen = [score for score in scores if choose(score)]
        return f"{median_error(chosen):.1%}" if chosen else "—"

    whole = median_error(scores)
    verdict = "met" if whole <= GOAL else "missed"
    return [name, *(cell(choose) for choose in _KINDS.values()), f"{whole:.1%}", verdict]


def _drift(runs: Sequence[LaneRun]) -> list[str]:
    rows = [["lane", "calibrated", "reads", "scored", "reads"]]
    rows += [
        [
            run.lane,
            run.calibrated,
            si_label(run.bandwidth_calibrated, "B/s"),
            run.scored,
            si_label(run.bandwidth_scored, "B/s"),
        ]
        for run in runs
    ]
    return ["How much the machine itself changed between the two:", "", *_table(rows)]


def _cells(run: LaneRun) -> list[str]:
    rows = [["cell", "measured", "range", "ideal", "typical", "p10 – p90", "error", "of the roof"]]
    for score in run.scores:
        name = Cell(score.kind, score.batch, score.tokens).name
        rows.append(
            [
                name,
                _ms(score.measured),
                f"{_ms(score.fastest)} – {_ms(score.slowest)}",
                _ms(score.ideal),
                _ms(score.typical),
                f"{_ms(score.p10)} – {_ms(score.p90)}",
                f"{score.error:+.1%}",
                f"{score.roof_share:.0%}",
            ]
        )
    title = f"## {run.lane}: median error {run.median_error:.1%}"
    return [title, "", "Milliseconds.", "", *_table(rows), ""]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f}" if seconds < 0.1 else f"{seconds * 1e3:,.0f}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return [head, "|" + "---|" * len(rows[0]), *rest]
