"""The validation report as a page: how far predictions are from published measurements."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import engine.simulator.validation as validation
from webapp.i18n import Language, Texts, texts
from webapp.pages.machine_view import (
    MachineView,
    machine_messages,
    machine_ratios,
    machine_view,
)
from webapp.pages.services_view import ServicesView, services_messages, services_view

DATA = Path(validation.__file__).parent / "validation.json"
TABLES = ("kind of number", "segment", "class of device", "number formats", "engine")
WIDEST = 4.0
"""Ratios of predicted to measured are drawn from 1/4 to 4; what lies beyond sits at the edge."""


@dataclass(frozen=True, slots=True)
class Dots:
    """Predicted over measured of every row of one kind, on a line to scale.

    ``path`` draws a dot at each ratio; ``low``, ``middle`` and ``high`` are coordinates of the
    10th percentile, the median and the 90th; ``words`` says the same.
    """

    name: str
    rows: int
    path: str
    low: float
    middle: float
    high: float
    words: tuple[str, str, str]
    beyond: int


@dataclass(frozen=True, slots=True)
class DotsChart:
    """All kinds in one size, one line each."""

    name: str
    width: float
    height: float
    left: float
    right: float
    top: float
    line_height: float
    ticks: tuple[tuple[float, str], ...]
    kinds: tuple[Dots, ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """Median and 90th percentile of |predicted / measured - 1|, as shares."""

    rows: int
    median: float
    p90: float

    @property
    def median_words(self) -> str:
        return f"{self.median:.1%}"

    @property
    def p90_words(self) -> str:
        return f"{self.p90:.0%}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table of errors."""

    name: str
    coverage: float
    roofline: Errors
    shipped: Errors
    unseen: Errors
    held_out_half: Errors | None

    @property
    def coverage_words(self) -> str:
        return f"{self.coverage:.0%}"


@dataclass(frozen=True, slots=True)
class GoalRow:
    """A goal, and what came out."""

    row: Row
    at_most: float
    met: bool

    @property
    def at_most_words(self) -> str:
        return f"{self.at_most:.0%}"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another tool on the same rows."""

    tool: str
    rows: int
    error: str
    ours: str
    closer: bool


@dataclass(frozen=True, slots=True)
class ValidationView:
    """Everything that the page shows."""

    usable: int
    not_usable: tuple[tuple[int, str], ...]
    goals: tuple[GoalRow, ...]
    coverage: str
    coverage_met: bool
    wide: DotsChart
    narrow: DotsChart
    tables: tuple[tuple[str, tuple[Row, ...]], ...]
    peers: tuple[Peer, ...]
    peer_rows: int
    services: ServicesView
    machine: MachineView
    machine_wide: DotsChart
    machine_narrow: DotsChart
    findings: tuple[tuple[str, str], ...]

    @property
    def all_rows(self) -> int:
        return self.usable + sum(count for count, _ in self.not_usable)


@lru_cache(maxsize=4)
def validation_view(language: Language) -> ValidationView:
    """The report that ``make validate`` wrote, in the reader's language."""
    said = texts(language)
    document = json.loads(DATA.read_text(encoding="utf-8"))
    ratios = _ratios(document)
    return ValidationView(
        usable=document["usable"],
        not_usable=tuple((n, said.gettext(why)) for why, n in document["not_usable"].items()),
        goals=tuple(
            GoalRow(_row(item, said), item["at_most"], item["met"]) for item in document["goals"]
        ),
        coverage=f"{document['coverage']['share']:.1%}",
        coverage_met=document["coverage"]["met"],
        wide=_dots_chart("wide", 640.0, ratios, said),
        narrow=_dots_chart("narrow", 358.0, ratios, said),
        tables=tuple(
            (said.gettext(title), tuple(_row(item, said) for item in document["tables"][title]))
            for title in TABLES
        ),
        peers=tuple(_peer(item) for item in document["peers"]["tools"]),
        peer_rows=document["peers"]["rows"],
        services=services_view(document["serving"], said),
        machine=machine_view(said),
        machine_wide=_dots_chart("wide", 640.0, machine_ratios(), said),
        machine_narrow=_dots_chart("narrow", 358.0, machine_ratios(), said),
        findings=tuple(
            (said.gettext(item["title"]), said.gettext(item["text"]))
            for item in document["findings"]
        ),
    )


def report_messages() -> set[str]:
    """Texts of the report that the page translates: a test compares them with the catalogue."""
    document = json.loads(DATA.read_text(encoding="utf-8"))
    named = [item["name"] for item in document["goals"]]
    named += [item["name"] for title in TABLES[:3] for item in document["tables"][title]]
    told = [text for item in document["findings"] for text in (item["title"], item["text"])]
    under_load = services_messages(document["serving"])
    return {*TABLES, *document["not_usable"], *named, *told, *under_load, *machine_messages()}


def _row(item: Mapping[str, Any], said: Texts) -> Row:
    half = item["held_out_half"]
    return Row(
        said.gettext(item["name"]),
        item["coverage"],
        _errors(item["roofline"]),
        _errors(item["shipped"]),
        _errors(item["unseen"]),
        None if half is None else _errors(half),
    )


def _errors(item: Mapping[str, Any]) -> Errors:
    return Errors(item["rows"], item["median"], item["p90"])


def _peer(item: Mapping[str, Any]) -> Peer:
    theirs, ours = item["error"], item["ours_unseen"]
    return Peer(item["tool"], item["rows"], f"{theirs:.1%}", f"{ours:.1%}", ours < theirs)


def _ratios(document: Mapping[str, Any]) -> Mapping[str, Sequence[float]]:
    """Predicted (unseen) over measured, by kind of number, in the order of the table of kinds."""
    columns = cast("list[str]", document["columns"])
    kind, measured, unseen = (columns.index(name) for name in ("kind", "measured", "unseen"))
    found: dict[str, list[float]] = {
        item["name"]: [] for item in document["tables"]["kind of number"]
    }
    for row in document["rows"]:
        found[row[kind]].append(row[unseen] / row[measured])
    return found


def _dots_chart(
    name: str, width: float, ratios: Mapping[str, Sequence[float]], said: Texts
) -> DotsChart:
    left, right, top, line_height = 12.0, width - 12.0, 26.0, 62.0

    def place(ratio: float) -> float:
        share = math.log(ratio * WIDEST) / math.log(WIDEST * WIDEST)
        return left + min(max(share, 0.0), 1.0) * (right - left)

    kinds = tuple(
        _dots(said.gettext(kind), values, [place(value) for value in values], place)
        for kind, values in ratios.items()
    )
    marks = ((0.25, "1/4"), (0.5, "1/2"), (1.0, "1"), (2.0, "2"), (4.0, "4"))
    return DotsChart(
        name,
        width,
        top + line_height * len(kinds) + 22.0,
        left,
        right,
        top,
        line_height,
        tuple((place(value), words) for value, words in marks),
        kinds,
    )


def _dots(
    name: str,
    values: Sequence[float],
    places: Sequence[float],
    place: Callable[[float], float],
) -> Dots:
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    low, middle, high = deciles[0], statistics.median(values), deciles[-1]
    # Spread over the line's height by a fixed pattern (the golden ratio's), so that equal ratios
    # stand beside one another and the picture is the same each time.
    dots = "".join(
        f"M{x:.1f} {28 + (index * 0.618034) % 1 * 24:.1f}h0" for index, x in enumerate(places)
    )
    return Dots(
        name,
        len(values),
        dots,
        place(low),
        place(middle),
        place(high),
        (f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}"),
        sum(not 1 / WIDEST <= value <= WIDEST for value in values),
    )
