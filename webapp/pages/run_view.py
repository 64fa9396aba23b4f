"""What the pages of saved runs show: who ran what, when and where, and the machine's own roof."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from babel.dates import format_datetime

from webapp.charts import NARROW, WIDE, Roof, roofline_chart
from webapp.i18n import Language
from webapp.pages.roofline_view import RooflineView
from webapp.schemas.live_events import ErrorEvent
from webapp.schemas.saved_run import Machine, SavedRun
from webapp.store.records import StoredRun
from webapp.store.saved_runs import EXAMPLE_ID


@dataclass(frozen=True, slots=True)
class RunView:
    """One saved run. Its texts come from a browser: the templates escape them. ``cut_off``: it
    ended with an error, and what there is of it is shown."""

    id: str
    title: str
    by: str
    prompt: str
    model: str
    machine: str
    lane: str
    random_weights: bool
    cut_off: bool
    ran: str
    expires: str | None
    facts: Machine
    roofline: RooflineView

    @property
    def example(self) -> bool:
        """Whether it comes with the program."""
        return self.id == EXAMPLE_ID


@dataclass(frozen=True, slots=True)
class Side:
    """One of two runs to compare: what was asked for, and the run if there is one."""

    name: str
    asked: str
    run: RunView | None


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """Both sides."""

    sides: tuple[Side, Side]

    @property
    def complete(self) -> bool:
        return all(side.run for side in self.sides)


def run_view(stored: StoredRun, run: SavedRun, language: Language) -> RunView:
    """The view of a stored run in a language; times are UTC."""
    accepted, machine = run.accepted, run.machine
    request = run.request
    prompt = request.prompt or "\n\n".join(turn.content for turn in request.messages or ())
    return RunView(
        id=stored.id,
        title=run.title.strip() or prompt[:80],
        by=run.by.strip(),
        prompt=prompt,
        model=machine.model_name,
        machine=machine.device_name,
        lane=accepted.dtype if accepted.lane is None else accepted.lane.name,
        random_weights=machine.random_weights,
        cut_off=isinstance(run.events[-1], ErrorEvent),
        ran=_date(run.ran_at_ms / 1e3, language),
        expires=None if stored.expires is None else _date(stored.expires, language),
        facts=machine,
        roofline=_roofline(run),
    )


def _roofline(run: SavedRun) -> RooflineView:
    measured = run.roof
    roof = None if measured is None else Roof(measured.bandwidth, measured.peak)
    dtype = run.accepted.dtype if measured is None else measured.dtype
    return RooflineView(dtype, roofline_chart(roof, WIDE), roofline_chart(roof, NARROW))


def _date(seconds: float, language: Language) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{format_datetime(moment, 'medium', locale=language.locale)} UTC"


def asked_id(asked: str) -> str:
    """The id in what was typed: a link of a saved run, or the id itself."""
    return asked.strip().partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]
