"""Slow to start or slow to stream? The form of measured times, and the diagnosis in words.

The fragments ``fragments/diagnose.html`` (form and answer) and ``fragments/diagnose_answer.html``
(the answer alone) draw a ``DiagnoseView``; any page may hold them. The form is a plain GET form:
its query is what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal
from urllib.parse import urlencode

import anyio.to_thread

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec, all_models
from engine.catalog.units import significant, time_label
from engine.errors import EngineError
from engine.simulator.diagnosis.diagnose import (
    BELOW_ROOFLINE,
    Cause,
    Diagnosis,
    Phase,
    diagnose,
)
from engine.simulator.diagnosis.document import ASSUMPTIONS, read_observations
from engine.simulator.diagnosis.hypotheses import Hypothesis, hypotheses
from engine.simulator.diagnosis.parts import CAUSES
from engine.simulator.diagnosis.remedies import Remedy, changes
from engine.simulator.search.cell import Cell
from engine.simulator.search.sensitivity import Elasticity
from webapp.charts import LogAxis
from webapp.i18n import Texts
from webapp.pages.elsewhere import hardware_by_category
from webapp.pages.query import Knobs
from webapp.pages.refusal_words import RefusalWords, refusal_words
from webapp.pages.simulator_question import CACHES, WEIGHTS
from webapp.simulations import SimulationRunner

VERDICTS = (
    BELOW_ROOFLINE,
    "slow to start and to stream",
    "slow to start",
    "slow to stream",
    "faster than usual",
    "as usual",
)
"""All that ``Diagnosis.verdict`` may say."""
PROMPT_ARITHMETIC = "arithmetic of the prompt"
MOST_REMEDIES = 6
MOST_SLOPES = 5
_LEAST_PART = 0.005


@dataclass(frozen=True, slots=True)
class DiagnoseQuestion:
    """What ran, and what was measured of it, in ms; None: not measured."""

    model: str = "llama-3.1-8b"
    hardware: str = "h100-sxm"
    devices: int = 1
    weights: str = "bf16"
    kv: str = "bf16"
    batch: int = 1
    prompt: int = 1000
    output: int = 200
    ttft: float | None = None
    itl: float | None = None
    itl_p99: float | None = None
    queue: float | None = None
    together: bool = False

    @property
    def asked(self) -> bool:
        """Whether a time was given that can be explained."""
        return self.ttft is not None or self.itl is not None

    @property
    def query(self) -> str:
        """The query string that asks this."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        given["together"] = "on" if self.together else None
        return urlencode({name: value for name, value in given.items() if value is not None})

    def document(self) -> dict[str, object]:
        """The question as ``POST /api/v1/diagnose`` takes it; times in s."""
        measured = {
            name: None if value is None else value / 1e3
            for name, value in (
                ("ttft", self.ttft),
                ("itl", self.itl),
                ("itl_p99", self.itl_p99),
                ("queue", self.queue),
            )
        }
        return {
            "cell": {
                "model": self.model,
                "hardware": self.hardware,
                "devices": self.devices,
                "weights": self.weights,
                "kv": self.kv,
                "times": "typical",
                "batch": self.batch,
                "prompt_tokens": self.prompt,
                "output_tokens": self.output,
            },
            "observations": [{**measured, "together": self.together}],
        }


def read_diagnose_question(query: Mapping[str, str]) -> DiagnoseQuestion:
    """The question in a query string."""
    knobs, default = Knobs(query), DiagnoseQuestion()
    times = {name: knobs.measured(name) for name in ("ttft", "itl", "itl_p99", "queue")}
    return DiagnoseQuestion(
        model=knobs.text("model", default.model),
        hardware=knobs.text("hardware", default.hardware),
        devices=knobs.whole("devices", default.devices, 1, 64),
        weights=knobs.text("weights", default.weights),
        kv=knobs.text("kv", default.kv),
        batch=knobs.whole("batch", default.batch, 1, 4096),
        prompt=knobs.whole("prompt", default.prompt, 1, 1_048_576),
        output=knobs.whole("output", default.output, 1, 131_072),
        together=knobs.flag("together"),
        **times,
    )


@dataclass(frozen=True, slots=True)
class Gap:
    """Ideal, typical and measured on one logarithmic line, in percent of its length."""

    ideal: float
    typical: float
    low: float
    high: float
    measured: float | None


@dataclass(frozen=True, slots=True)
class PartView:
    """A part of the typical time: its cause, and its share in percent and in words."""

    words: str
    width: float
    time: str


@dataclass(frozen=True, slots=True)
class PhaseView:
    """One of the two times beside its predictions. Ratios are measured over predicted."""

    name: Literal["start", "stream"]
    measured: str | None
    ideal: str
    typical: str
    low: str
    high: str
    over_ideal: str | None
    over_typical: str | None
    state: Literal["slow", "fast", "usual", "unknown"]
    gap: Gap | None
    parts: tuple[PartView, ...]


@dataclass(frozen=True, slots=True)
class CauseView:
    """A cause, how likely it is or what share of the time it takes (percent), and why."""

    words: str
    percent: float
    likely: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class RemedyView:
    """A change, the times that it would give, and what it saves."""

    words: str
    ttft: str
    itl: str
    saves: str
    fits: bool


@dataclass(frozen=True, slots=True)
class DiagnosisView:
    """The diagnosis as the page words it."""

    verdict: str
    usual: bool
    sure: bool
    most_time: str
    phases: tuple[PhaseView, ...]
    causes: tuple[CauseView, ...]
    remedies: tuple[RemedyView, ...]
    saves_of: Literal["start", "stream", "answer"]
    slopes: Mapping[str, tuple[Elasticity, ...]]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiagnoseView:
    """The form with its choices, and the diagnosis, or why there is none.

    ``refusal``: the field at fault, if one is, and the reason.
    """

    question: DiagnoseQuestion
    models: tuple[ModelSpec, ...]
    hardware: Mapping[str, tuple[HardwareSpec, ...]]
    weights: tuple[str, ...] = WEIGHTS
    caches: tuple[str, ...] = CACHES
    answer: DiagnosisView | None = None
    refusal: RefusalWords | None = None


def diagnose_form(question: DiagnoseQuestion) -> DiagnoseView:
    """The form alone."""
    return DiagnoseView(question, all_models(), hardware_by_category())


async def diagnose_answer(
    question: DiagnoseQuestion, simulations: SimulationRunner, said: Texts
) -> DiagnoseView:
    """The form and the diagnosis, made in a thread; without a measured time the form alone."""
    view = diagnose_form(question)
    if not question.asked:
        return view

    def run() -> DiagnosisView:
        return diagnosis_view(diagnose(read_observations(question.document())), said)

    try:
        async with simulations.slot():
            return replace(view, answer=await anyio.to_thread.run_sync(run))
    except EngineError as error:
        return replace(view, refusal=refusal_words(error, said))


def diagnosis_view(found: Diagnosis, said: Texts) -> DiagnosisView:
    """A diagnosis in the reader's words."""
    first = found.observations[0]
    slopes: dict[str, list[Elasticity]] = {"ttft": [], "itl": []}
    for slope in found.sensitivities:
        slopes[slope.metric].append(slope)
    part = "stream" if first.ttft is None else "start" if first.itl is None else "answer"
    return DiagnosisView(
        verdict=said.gettext(found.verdict),
        usual=all(cause.probability is None for cause in found.causes),
        sure=found.sure,
        most_time=found.most_time,
        phases=(_phase("start", found.start, said), _phase("stream", found.stream, said)),
        causes=tuple(_cause(cause, found, said) for cause in found.causes),
        remedies=tuple(_remedy(item, found, said) for item in found.remedies[:MOST_REMEDIES]),
        saves_of=part,
        slopes={name: tuple(items[:MOST_SLOPES]) for name, items in slopes.items() if items},
        assumptions=tuple(map(said.gettext, ASSUMPTIONS)),
    )


def diagnosis_messages() -> set[str]:
    """Every text of the engine that a diagnosis may show, for translators."""
    cell = Cell("llama-3.1-8b", "h100-sxm", devices=2, batch=2, times="typical")
    found: set[str] = {*VERDICTS, *CAUSES.values(), PROMPT_ARITHMETIC, *ASSUMPTIONS}
    for item in hypotheses(cell):
        found |= {item.words, item.unit} if item.name != "expected" else set()
    found |= {words for _, words, _ in changes(cell)}
    return found - {""}


def _phase(name: Literal["start", "stream"], phase: Phase, said: Texts) -> PhaseView:
    total = sum(phase.parts.values())
    state = "slow" if phase.slow else "fast" if phase.fast else "usual"
    return PhaseView(
        name=name,
        measured=None if phase.measured is None else time_label(phase.measured),
        ideal=_time(phase.ideal),
        typical=_time(phase.typical),
        low=_time(phase.p10),
        high=_time(phase.p90),
        over_ideal=_ratio(phase.measured, phase.ideal),
        over_typical=_ratio(phase.measured, phase.typical),
        state="unknown" if phase.measured is None else state,
        gap=_gap(phase),
        parts=tuple(
            PartView(said.gettext(CAUSES[cause]), 100 * seconds / total, time_label(seconds))
            for cause, seconds in sorted(phase.parts.items(), key=lambda item: -item[1])
            if seconds >= _LEAST_PART * total
        ),
    )


def _gap(phase: Phase) -> Gap | None:
    """None where one token has no gap after it."""
    predicted = (phase.ideal, phase.typical, phase.p10, phase.p90)
    if any(map(math.isnan, predicted)):
        return None
    measured = phase.measured
    times = predicted if measured is None else (*predicted, measured)
    low, high = math.log10(min(times)), math.log10(max(times))
    room = max(0.08 * (high - low), 0.05)
    axis = LogAxis(low - room, high + room, 0.0, 100.0)
    ideal, typical, first, last = map(axis.position, predicted)
    place = None if measured is None else axis.position(measured)
    return Gap(ideal, typical, first, last, place)


def _cause(cause: Cause, found: Diagnosis, said: Texts) -> CauseView:
    if cause.share is not None:
        in_start = found.observations[0].slow_phase_is_start
        whole = sum((found.start if in_start else found.stream).parts.values())
        template = (
            said.gettext("{part} of {whole} before the first token, typically")
            if in_start
            else said.gettext("{part} of {whole} between tokens, typically")
        )
        evidence = template.format(part=time_label(cause.share * whole), whole=time_label(whole))
        return CauseView(said.gettext(cause.words), 100 * cause.share, False, evidence)
    weighed = next(item for item in found.weighed if item.hypothesis.name == cause.name)
    times, hypothesis = weighed.times[0], weighed.hypothesis
    evidence = said.gettext("TTFT {ttft} and ITL {itl} are predicted with it").format(
        ttft=_time(times.ttft), itl=_time(times.itl)
    )
    if hypothesis.unit:
        at = said.gettext("at {strength} {unit}").format(
            strength=_strength(hypothesis, weighed.strength), unit=said.gettext(hypothesis.unit)
        )
        evidence = said.gettext("{at}: {rest}").format(at=at, rest=evidence)
    return CauseView(said.gettext(cause.words), 100 * weighed.probability, True, evidence)


def _strength(hypothesis: Hypothesis, strength: float | str) -> str:
    return strength if isinstance(strength, str) else f"{strength:.3g}"


def _remedy(remedy: Remedy, found: Diagnosis, said: Texts) -> RemedyView:
    removes = remedy.name == "remove-the-cause"
    return RemedyView(
        said.gettext("without the likeliest cause") if removes else said.gettext(remedy.words),
        "—" if remedy.ttft is None else time_label(remedy.ttft),
        "—" if remedy.itl is None else _time(remedy.itl),
        time_label(remedy.saving(found.observations[0])),
        remedy.fits,
    )


def _time(seconds: float) -> str:
    return "—" if math.isnan(seconds) else time_label(seconds)


def _ratio(measured: float | None, predicted: float) -> str | None:
    if measured is None or math.isnan(predicted):
        return None
    return f"{significant(measured / predicted)}×"
