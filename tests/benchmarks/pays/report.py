"""Sections of PAYS.md: one for each part, kept in pays.json, each replaced alone."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.inference.loading import LoadedModel
from engine.inference.native.build import find
from engine.inference.native.switch import MODE

PARTS = ("cache", "batching", "speculation", "probes")

_HEADING = """# What pays

Written by `python -m tests.benchmarks.pays`, which runs the engine in one process, its messages as
the only witness. Times are measured unless a column says predicted. Each section was made by one
run, under the conditions that it names.
"""
_MARKS = {True: "yes", False: "no", None: "open"}


@dataclass(frozen=True, slots=True)
class Conditions:
    """Where, when and with what a part was measured. ``load_before``: processes that wanted to run
    in the minute before, of everybody on the machine."""

    date: str
    model: str
    source_format: str
    random_weights: bool
    device: str
    device_name: str
    threads: int
    cores: int
    native: bool
    python: str
    torch: str
    system: str
    load_before: float
    quick: bool

    @classmethod
    def of(cls, model: LoadedModel, *, quick: bool) -> Conditions:
        """As they are now."""
        return cls(
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            model=model.config.name,
            source_format=model.source_format,
            random_weights=model.random_weights,
            device=model.device,
            device_name=model.device_name,
            threads=model.threads,
            cores=os.cpu_count() or 1,
            native=model.device == "cpu"
            and os.environ.get(MODE, "auto") != "off"
            and find() is not None,
            python=platform.python_version(),
            torch=model.torch_version,
            system=f"{platform.system()} {platform.release()}",
            load_before=os.getloadavg()[0],
            quick=quick,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a claim holds by the numbers; None where these cannot tell."""

    claim: str
    holds: bool | None
    because: str


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """What one part found. ``how``: what was run. ``remarks``: sentences that follow from the
    numbers. ``data``: the numbers, JSON-able."""

    part: str
    title: str
    how: str
    tables: Sequence[Table]
    remarks: Sequence[str]
    verdicts: Sequence[Verdict]
    data: dict[str, Any]

    def to_document(self, conditions: Conditions, seconds: float) -> dict[str, Any]:
        """For ``json.dumps``; all that the page shows is in it. ``seconds``: what it took."""
        return {"conditions": asdict(conditions), "seconds": round(seconds, 1), **asdict(self)}


def write(folder: Path, made: dict[str, dict[str, Any]]) -> str:
    """Put sections into pays.json in place of earlier ones of the same parts, and write PAYS.md
    from all that are there. Returns the page."""
    kept = folder / "pays.json"
    old = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    sections = {part: (old | made)[part] for part in PARTS if part in old or part in made}
    page = to_markdown(sections)
    folder.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(sections, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (folder / "PAYS.md").write_text(page, encoding="utf-8")
    return page


def to_markdown(sections: dict[str, dict[str, Any]]) -> str:
    """The page, from the documents of its sections."""
    return _HEADING + "".join(f"\n{_section(section)}" for section in sections.values())


def _section(section: dict[str, Any]) -> str:
    verdicts = Table(
        "",
        ("claim", "holds", "because"),
        [(v["claim"], _MARKS[v["holds"]], v["because"]) for v in section["verdicts"]],
    )
    tables = [Table(**table) for table in section["tables"]]
    parts = [
        f"## {section['title']}",
        section["how"],
        _table(verdicts),
        *(_table(table) for table in tables),
        *section["remarks"],
        _conditions(section["conditions"], section["seconds"]),
    ]
    return "\n\n".join(parts) + "\n"


def _conditions(c: dict[str, Any], seconds: float) -> str:
    steps = "native steps where they apply" if c["native"] else "steps in torch"
    trial = " A short trial, not a result." if c["quick"] else ""
    random = " with random weights" if c["random_weights"] else f" from {c['source_format']}"
    return (
        f"*Measured on {c['date']} in {seconds:.0f} s: {c['model']}{random}, on "
        f"{c['device_name']} ({c['device']}, {c['threads']} threads, {c['cores']} cores), {steps}, "
        f"Python {c['python']}, torch {c['torch']}, {c['system']}. "
        f"System load before: {c['load_before']:.2f}.{trial}*"
    )


def _table(table: Table) -> str:
    rows = [_row(table.columns), _row(["---"] * len(table.columns)), *map(_row, table.rows)]
    return "\n".join([f"{table.caption}\n"] * bool(table.caption) + rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
