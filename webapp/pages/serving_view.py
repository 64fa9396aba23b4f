"""The serving page: percentiles, who waited for what, and the levels over time of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec, all_models
from engine.catalog.units import significant, time_label
from engine.errors import EngineError
from engine.simulator.money import MILLION, SECONDS_AN_HOUR
from engine.simulator.serving.quantiles import Distribution
from engine.simulator.serving.result import ServingResult
from engine.simulator.serving.routing import Routing
from webapp.i18n import Texts
from webapp.line_chart import ChartWords, Line, LineStyle, Plot, plot
from webapp.pages.elsewhere import hardware_by_category
from webapp.pages.refusal_words import RefusalWords, refusal_words
from webapp.pages.serving_question import ServingQuestion
from webapp.pages.serving_runs import ServedRun, run_serving
from webapp.pages.simulator_question import CACHES, WEIGHTS

PERCENTILES = (50, 90, 95, 99)
KNEE = (0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Loads of the throughput-latency curve, as multiples of the one that was asked for."""
KNEE_REQUESTS = 80


@dataclass(frozen=True, slots=True)
class PercentileRow:
    """One kind of time: its percentiles, mean and largest, in words."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One request: where its waiting, its prefill and its decode lie, in SVG units."""

    top: float
    waiting: tuple[float, float]
    prefill: tuple[float, float]
    decode: tuple[float, float]
    preempted: bool
    good: bool
    words: str


@dataclass(frozen=True, slots=True)
class Gantt:
    """The first requests of the run on one axis of time."""

    width: float
    height: float
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class ServingForm:
    """What the form offers."""

    question: ServingQuestion
    models: tuple[ModelSpec, ...]
    hardware: Mapping[str, tuple[HardwareSpec, ...]]
    weights: tuple[str, ...] = WEIGHTS
    caches: tuple[str, ...] = CACHES
    routings: tuple[str, ...] = tuple(kind.value for kind in Routing)


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """What the devices cost an hour, and a million output tokens at this throughput, in US$."""

    hour: str
    tokens: str
    own: bool


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """The run in words and pictures; ``refusal`` says why there is none."""

    question: ServingQuestion
    result: ServingResult | None = None
    rows: tuple[PercentileRow, ...] = ()
    gantt: Gantt | None = None
    levels: tuple[Plot, ...] = ()
    cost: ServiceCost | None = None
    refusal: RefusalWords | None = None

    @property
    def recorded(self) -> int | None:
        """Requests of the reader's trace, where one was served."""
        return self.facts.scenario.workload.size.requests if self.question.trace else None

    @property
    def facts(self) -> ServingResult:
        """The result of an answer that has one."""
        if self.result is None:
            raise ValueError("a refused question has no result")
        return self.result


@dataclass(frozen=True, slots=True)
class KneeAnswer:
    """Latency over throughput, from a light load to twice the one asked for."""

    plots: tuple[Plot, ...] = ()
    refusal: RefusalWords | None = None


def serving_form(question: ServingQuestion) -> ServingForm:
    """The form alone."""
    return ServingForm(question, all_models(), hardware_by_category())


def serving_answer(question: ServingQuestion, said: Texts) -> ServingAnswer:
    """The run in words and pictures, or why there is none."""
    try:
        return draw_serving(question, run_serving(question), said)
    except EngineError as error:
        return ServingAnswer(question, refusal=refusal_words(error, said))


def draw_serving(question: ServingQuestion, run: ServedRun, said: Texts) -> ServingAnswer:
    """A run that was made in words and pictures."""
    result = run.result
    return ServingAnswer(
        question,
        result,
        _rows(result, said),
        _gantt(run, said),
        _levels(result, said),
        _cost(question, result),
    )


def _cost(question: ServingQuestion, result: ServingResult) -> ServiceCost | None:
    """All devices' price over all output tokens, which pay for the prompts too."""
    prices = _prices(question, result)
    if not prices:
        return None
    hours = [each * result.scenario.devices for each in dict.fromkeys(prices)]
    rate = result.output_tokens_per_s * SECONDS_AN_HOUR / MILLION
    tokens = [hour / rate for hour in hours] if rate else []
    own = question.usd is not None
    return ServiceCost(_dollars(hours), _dollars(tokens) if tokens else "—", own)


def _prices(question: ServingQuestion, result: ServingResult) -> tuple[float, ...]:
    """One's own price of a device and hour, or the lowest and the highest published."""
    if question.usd is not None:
        return (question.usd,)
    price = result.cost_model.hardware.price
    return () if price is None else (price.low, price.high)


def _dollars(values: Sequence[float]) -> str:
    return " – ".join(f"${significant(value)}" for value in values)


def knee_questions(question: ServingQuestion) -> list[ServingQuestion]:
    """The loads of the curve, each a run of its own."""
    return [question.at(factor, KNEE_REQUESTS) for factor in KNEE]


def draw_knee(served: Sequence[ServedRun], said: Texts) -> KneeAnswer:
    """The curve of throughput and latency through runs at several loads."""
    runs = sorted((run.result for run in served), key=lambda run: run.output_tokens_per_s)
    return KneeAnswer(
        (
            _knee(said, runs, "ttft", "prefill", said.gettext("TTFT over throughput, p50 and p95")),
            _knee(said, runs, "tpot", "decode", said.gettext("TPOT over throughput, p50 and p95")),
        )
    )


def _rows(result: ServingResult, said: Texts) -> tuple[PercentileRow, ...]:
    names = (
        ("TTFT", result.ttft),
        ("ITL", result.itl),
        ("TPOT", result.tpot),
        (said.gettext("whole answer (E2E)"), result.e2e),
        (said.gettext("in the queue"), result.queued),
    )
    return tuple(PercentileRow(name, _values(found)) for name, found in names)


def _values(found: Distribution | None) -> tuple[str, ...]:
    if found is None:
        return ("—",) * (len(PERCENTILES) + 2)
    numbers = [found.percentile(percent) for percent in PERCENTILES]
    return tuple(time_label(value) for value in (*numbers, found.mean, found.most))


def _gantt(run: ServedRun, said: Texts) -> Gantt | None:
    first = run.first
    if not first:
        return None
    origin = first[0].arrival
    end = max(times.arrival + times.e2e for times in first) - origin
    width, row = 1000.0, 10.0
    scale = width / end
    slo = run.result.scenario.slo
    bars: list[Bar] = []
    for index, times in enumerate(first):
        came = (times.arrival - origin) * scale
        started, answered = came + times.queued * scale, came + times.ttft * scale
        bars.append(
            Bar(
                index * row,
                (came, started - came),
                (started, answered - started),
                (answered, (times.e2e - times.ttft) * scale),
                times.preemptions > 0,
                slo.kept_by(times.ttft, times.tpot, times.e2e),
                said.gettext(
                    "request %(number)s: waits %(queued)s, first token after %(ttft)s, whole "
                    "answer after %(e2e)s"
                )
                % {
                    "number": index + 1,
                    "queued": time_label(times.queued),
                    "ttft": time_label(times.ttft),
                    "e2e": time_label(times.e2e),
                },
            )
        )
    ticks = tuple((share * width, time_label(share * end)) for share in (0.25, 0.5, 0.75, 1.0))
    return Gantt(width, len(first) * row, tuple(bars), ticks)


def _levels(result: ServingResult, said: Texts) -> tuple[Plot, ...]:
    series = result.series
    seconds = said.gettext("time, s")
    blocks = result.kv_blocks * result.scenario.units
    used = tuple(100 * value / blocks for value in series.means["kv_blocks_used"])
    return (
        _over_time(
            "levels",
            said.gettext("Requests over time"),
            seconds,
            said.gettext("requests"),
            series.width,
            (
                (said.gettext("running"), series.means["running"], "decode"),
                (said.gettext("waiting"), series.means["waiting"], "4"),
            ),
        ),
        _over_time(
            "kv-over-time",
            said.gettext("KV cache in use over time"),
            seconds,
            "%",
            series.width,
            ((said.gettext("blocks in use"), used, "1"),),
        ),
    )


def _over_time(
    id: str,
    title: str,
    x: str,
    y: str,
    width: float,
    named: Sequence[tuple[str, Sequence[float], LineStyle]],
) -> Plot:
    words = ChartWords(id, title, title, x, y, significant, significant)
    lines = [
        Line(name, tuple((index * width, value) for index, value in enumerate(values)), style)
        for name, values, style in named
    ]
    return plot(words, lines)


def _knee(
    said: Texts, runs: Sequence[ServingResult], name: str, style: LineStyle, title: str
) -> Plot:
    words = ChartWords(
        id=f"knee-{name}",
        title=title,
        description=said.gettext("Each point is a run at another load."),
        x=said.gettext("output tokens/s"),
        y=name.upper(),
        x_value=significant,
        y_value=time_label,
        y_tick=time_label,
    )
    looks: tuple[tuple[int, LineStyle], ...] = ((50, style), (95, "1"))
    lines = [Line(f"p{percent}", _points(runs, name, percent), look) for percent, look in looks]
    return plot(words, lines, log_y=True)


def _points(
    runs: Sequence[ServingResult], name: str, percent: int
) -> tuple[tuple[float, float | None], ...]:
    points: list[tuple[float, float | None]] = []
    for run in runs:
        found: Distribution | None = getattr(run, name)
        points.append((run.output_tokens_per_s, found.percentile(percent) if found else None))
    return tuple(points)
