"""Small cases of lesson 12: what somebody measured of a slow service, and what was behind it.

The numbers of a case are the simulator's: a deployment of the catalogue with one cause turned on.
What the reader answers is held against ``diagnose``, which sees the numbers alone, as the reader
does, and against the cause that made them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from engine.catalog.units import significant, time_label
from engine.errors import InvalidRequest
from engine.simulator.diagnosis.diagnose import Diagnosis, diagnose
from engine.simulator.diagnosis.hypotheses import Hypothesis, hypotheses
from engine.simulator.diagnosis.observation import Observation, Times
from engine.simulator.search.cell import Cell
from webapp.i18n import N_, Texts

PHASES: Mapping[str, str] = {
    "slow to start": N_("Slow to start"),
    "slow to stream": N_("Slow to stream"),
    "slow to start and to stream": N_("Both"),
    "as usual": N_("Neither: it is as such a service usually is"),
}
"""What a reader may answer, by what ``Diagnosis.verdict`` says."""
EXPECTED = "expected"
USUAL = N_("as such a deployment usually is")
"""The words of that hypothesis, which no diagnosis shows."""


@dataclass(frozen=True, slots=True)
class Case:
    """A complaint, the deployment, and its cause: a name of ``hypotheses`` with a strength.

    ``others`` are causes that are offered beside the true one.
    """

    name: str
    story: str
    cell: Cell
    cause: str
    strength: float
    others: tuple[str, ...]

    @property
    def causes(self) -> tuple[str, ...]:
        """What the reader chooses from, in an order that gives nothing away."""
        return tuple(sorted((self.cause, *self.others)))


def _cell(prompt: int, output: int, *, hardware: str = "h100-sxm", batch: int = 1) -> Cell:
    return Cell(
        "llama-3.1-8b",
        hardware,
        times="typical",
        batch=batch,
        prompt_tokens=prompt,
        output_tokens=output,
    )


CASES: tuple[Case, ...] = (
    Case(
        "monday",
        N_("“On Monday mornings nothing happens for seconds. Once it writes, it is fine.”"),
        _cell(300, 200),
        "queueing",
        2.5,
        ("slow-memory", "slow-compute"),
    ),
    Case(
        "typewriter",
        N_("“It begins at once, and then types like somebody who hunts for the keys.”"),
        _cell(8000, 300),
        "slow-memory",
        0.2,
        ("queueing", "longer-prompt"),
    ),
    Case(
        "assistant",
        N_("“Our assistant waits before every answer. People type a line or two.”"),
        _cell(100, 200),
        "longer-prompt",
        32.0,
        ("cpu-bound", "larger-batch"),
    ),
    Case(
        "report",
        N_("“A report takes half a minute! The service must be broken.”"),
        _cell(500, 4000),
        EXPECTED,
        1.0,
        ("slow-memory", "queueing"),
    ),
    Case(
        "hall",
        N_("“Alone it was quick. Since the launch, every word comes haltingly.”"),
        _cell(2000, 300),
        "larger-batch",
        48.0,
        ("queueing", "slow-compute"),
    ),
    Case(
        "syrup",
        N_("“Everything drags, from the first word to the last.”"),
        _cell(200, 200),
        "launch-bound",
        12.0,
        ("queueing", "longer-prompt"),
    ),
)


def get_case(name: str) -> Case:
    """The case of that name.

    Raises:
        InvalidRequest: there is none (field "case").
    """
    for case in CASES:
        if case.name == name:
            return case
    raise InvalidRequest("no case of this name", field="case")


def measured(case: Case) -> Times:
    """What was measured in the case: the prediction with its cause turned on."""
    asked = Observation(case.cell, ttft=1.0, itl=1.0)  # its times are not looked at
    return _hypothesis(case, case.cause).predict(asked, case.strength)


@cache
def solved(name: str) -> Diagnosis:
    """What the two numbers of a case say, to one who does not know its cause."""
    case = get_case(name)
    times = measured(case)
    return diagnose([Observation(case.cell, ttft=times.ttft, itl=times.itl)])


def _hypothesis(case: Case, name: str) -> Hypothesis:
    return next(item for item in hypotheses(case.cell) if item.name == name)


@dataclass(frozen=True, slots=True)
class CaseView:
    """A case as the page shows it; times in words. ``causes`` by name."""

    name: str
    story: str
    model: str
    hardware: str
    prompt: int
    output: int
    ttft: str
    itl: str
    whole: str
    causes: Mapping[str, str]
    phases: Mapping[str, str]


def case_view(case: Case, said: Texts) -> CaseView:
    """The case, without its solution."""
    times, cell = measured(case), case.cell
    return CaseView(
        case.name,
        said.gettext(case.story),
        cell.model_spec.id,
        cell.hardware_spec.name,
        cell.prompt_tokens,
        cell.output_tokens,
        time_label(times.ttft),
        time_label(times.itl),
        time_label(times.ttft + (cell.output_tokens - 1) * times.itl),
        {name: said.gettext(_hypothesis(case, name).words) for name in case.causes},
        {verdict: said.gettext(words) for verdict, words in PHASES.items()},
    )


@dataclass(frozen=True, slots=True)
class SolutionView:
    """What the reader answered beside what is true.

    ``start`` and ``stream`` are the measured times over the typical ones, in words; ``likeliest``
    is the cause that the numbers alone suggest, with its probability in percent, None where they
    suggest none. ``remedy`` helps most beside removing the cause, with what it saves.
    """

    phase_right: bool
    phase: str
    cause_right: bool
    cause: str
    start: str
    stream: str
    likeliest: tuple[str, str] | None
    remedy: tuple[str, str] | None


def solution_view(name: str, phase: str, cause: str, said: Texts) -> SolutionView:
    """Holds an answer against the truth.

    Raises:
        InvalidRequest: there is no such case (field "case").
    """
    case, found = get_case(name), solved(name)
    top = found.causes[0]
    helpful = (item for item in found.remedies if item.name != "remove-the-cause")
    best = next(helpful, None)
    return SolutionView(
        phase_right=phase == found.verdict,
        phase=said.gettext(PHASES[found.verdict]),
        cause_right=cause == case.cause,
        cause=said.gettext(_hypothesis(case, case.cause).words),
        start=_over(found.start.measured, found.start.typical),
        stream=_over(found.stream.measured, found.stream.typical),
        likeliest=None
        if top.probability is None
        else (said.gettext(top.words), f"{top.probability:.0%}"),
        remedy=None
        if best is None
        else (said.gettext(best.words), time_label(best.saving(found.observations[0]))),
    )


def _over(seconds: float | None, typical: float) -> str:
    return "—" if seconds is None else f"{significant(seconds / typical)}×"
