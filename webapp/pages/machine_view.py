"""The real engine beside its predictions, as the report of the benchmark on one machine says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.catalog.units import time_label
from engine.simulator.validation.this_machine import (
    FINDINGS,
    GOAL,
    KINDS,
    MachineCell,
    MachineLane,
    by_kind,
    read_machine,
)
from webapp.i18n import Texts


@dataclass(frozen=True, slots=True)
class CellRow:
    """One measured median and its predictions, in words."""

    name: str
    measured: str
    ideal: str
    typical: str
    low: str
    high: str
    error: str
    held: bool


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One lane: median errors by kind of step and over all, and the cells that they are of."""

    name: str
    day: str
    kinds: tuple[str, ...]
    error: str
    bias: str
    drift_free: str
    met: bool
    cells: tuple[CellRow, ...]


@dataclass(frozen=True, slots=True)
class MachineView:
    """What was measured where, lane by lane, and what the residuals show."""

    model: str
    device: str
    threads: int
    torch: str
    goal: str
    medians: int
    inside: str
    kinds: tuple[str, ...]
    lanes: tuple[LaneRow, ...]
    findings: tuple[tuple[str, str], ...]

    @property
    def missed(self) -> tuple[str, ...]:
        """Lanes that miss the goal."""
        return tuple(lane.name for lane in self.lanes if not lane.met)


def machine_view(said: Texts) -> MachineView:
    """The stored runs in the reader's language."""
    lanes = read_machine()
    cells = [cell for lane in lanes for cell in lane.cells]
    first = lanes[0]
    return MachineView(
        first.model,
        first.device,
        first.threads,
        first.torch,
        f"{GOAL:.0%}",
        len(cells),
        f"{sum(cell.held for cell in cells) / len(cells):.0%}",
        tuple(said.gettext(name) for name, _ in KINDS),
        tuple(_lane(lane, said) for lane in lanes),
        tuple((said.gettext(title), said.gettext(text)) for title, text in FINDINGS),
    )


def machine_ratios() -> Mapping[str, Sequence[float]]:
    """Typical over measured of every cell, by lane."""
    return {lane.name: [cell.ratio for cell in lane.cells] for lane in read_machine()}


def machine_messages() -> set[str]:
    """Texts of the stored report, for translators."""
    told = [text for finding in FINDINGS for text in finding]
    return {*told, *(name for name, _ in KINDS)}


def _lane(lane: MachineLane, said: Texts) -> LaneRow:
    return LaneRow(
        lane.name,
        lane.scored[:10],
        tuple(f"{error:.1%}" for error in by_kind(lane)),
        f"{lane.median_error:.1%}",
        f"{lane.bias:+.1%}",
        f"{lane.drift_free_error:.1%}",
        lane.met,
        tuple(_cell(cell, said) for cell in lane.cells),
    )


def _cell(cell: MachineCell, said: Texts) -> CellRow:
    if cell.kind == "prefill":
        name = said.gettext("prefill of {tokens}").format(tokens=f"{cell.tokens:,}")
    else:
        template = said.gettext("decode, batch {batch}, context {tokens}")
        name = template.format(batch=cell.batch, tokens=f"{cell.tokens:,}")
    return CellRow(
        name,
        time_label(cell.measured),
        time_label(cell.ideal),
        time_label(cell.typical),
        time_label(cell.p10),
        time_label(cell.p90),
        f"{cell.ratio - 1:+.1%}",
        cell.held,
    )
