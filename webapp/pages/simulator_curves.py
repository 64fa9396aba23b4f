"""Curves of the simulator's page: latency over batch, context and prompt; throughput over batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from engine.catalog.units import si_label, significant, time_label
from engine.scheduling.plan import SequenceShape
from engine.simulator.deployment import TIMES, Times
from engine.simulator.intervals import Metric, interval
from engine.simulator.phases import step_time
from engine.simulator.run import first_token_overhead
from webapp.i18n import Texts
from webapp.line_chart import ChartWords, Cross, Line, LineStyle, Plot, plot
from webapp.pages.simulator_side import SideView

BATCHES = tuple(2**n for n in range(11))
LENGTHS = tuple(2**n for n in range(6, 21))
Value = Callable[[SideView, Times, int], float]


@dataclass(frozen=True, slots=True)
class _Curve:
    """One chart: its value at each place, the kind whose interval it has, its colour and words."""

    id: str
    value: Value
    places: tuple[int, ...]
    here: int
    metric: Metric | None
    style: LineStyle
    title: str
    x: str
    y: str


def curves(sides: Sequence[SideView], said: Texts) -> tuple[Plot, ...]:
    """The four charts, each with an ideal and a typical line a side."""
    load, lengths = sides[0].side, _lengths(sides)
    together, gap = said.gettext("requests together"), said.gettext("time between tokens")
    charts = (
        _Curve(
            "itl-batch", _itl_of_batch, BATCHES, load.batch, Metric.BATCHED, "decode",
            said.gettext("Time between tokens over the batch"), together, gap,
        ),
        _Curve(
            "rate-batch", _rate_of_batch, BATCHES, load.batch, None, "decode",
            said.gettext("Tokens a second of all requests over the batch"),
            together, said.gettext("tokens/s"),
        ),
        _Curve(
            "itl-context", _itl_of_context, lengths, load.prompt, Metric.DECODE, "decode",
            said.gettext("Time between tokens over the context"),
            said.gettext("context, positions"), gap,
        ),
        _Curve(
            "ttft-prompt", _ttft_of_prompt, lengths, load.prompt, Metric.TTFT, "prefill",
            said.gettext("Time to the first token over the prompt"),
            said.gettext("prompt, tokens"), said.gettext("time to first token"),
        ),
    )  # fmt: skip
    return tuple(_plot(curve, sides, said) for curve in charts)


def _plot(curve: _Curve, sides: Sequence[SideView], said: Texts) -> Plot:
    rate = curve.metric is None
    chart = ChartWords(
        id=curve.id,
        title=curve.title,
        description=said.gettext("Predicted; both axes are logarithmic."),
        x=curve.x,
        y=curve.y,
        x_value=lambda number: f"{number:,.0f}",
        y_value=_rate if rate else time_label,
        y_tick=_rate_tick if rate else _time_tick,
    )
    several = len(sides) > 1
    lines = [line for side in sides for line in _lines(curve, side, said, several=several)]
    here = Cross(curve.here, f"{curve.here:,}")
    return plot(chart, lines, log_x=True, log_y=True, crosses=[here])


def _lines(curve: _Curve, view: SideView, said: Texts, *, several: bool) -> Iterator[Line]:
    second = view.letter == "B"
    names = {"ideal": said.gettext("ideal"), "typical": said.gettext("typical")}
    for times in TIMES:
        points = tuple((float(place), curve.value(view, times, place)) for place in curve.places)
        usual = times == "typical"
        band: tuple[tuple[float, float], ...] = ()
        if usual and curve.metric is not None and not second:
            low, high = interval(curve.metric, view.hardware)
            band = tuple((point * low, point * high) for _, point in points)
        style: LineStyle = ("2" if usual else "5") if second else (curve.style if usual else "4")
        name = f"{view.letter}: {names[times]}" if several else names[times]
        yield Line(name, points, style, band=band)


def _itl_of_batch(view: SideView, times: Times, batch: int) -> float:
    groups = -(-batch // view.side.data)
    context = view.side.prompt + view.side.output // 2
    return step_time(view.models[times], (groups, SequenceShape(context, 1, True)))


def _rate_of_batch(view: SideView, times: Times, batch: int) -> float:
    return batch / _itl_of_batch(view, times, batch)


def _itl_of_context(view: SideView, times: Times, context: int) -> float:
    groups = view.runs[times].group_requests
    return step_time(view.models[times], (groups, SequenceShape(context, 1, True)))


def _ttft_of_prompt(view: SideView, times: Times, prompt: int) -> float:
    model = view.models[times]
    together = (view.runs[times].group_requests, SequenceShape(0, prompt, True))
    return step_time(model, together, from_empty=True) + first_token_overhead(model)


def _lengths(sides: Sequence[SideView]) -> tuple[int, ...]:
    """Lengths up to the shortest of the models' contexts."""
    most = min(view.max_context for view in sides)
    return tuple(length for length in LENGTHS if length <= most) or LENGTHS[:1]


def _rate(value: float) -> str:
    return f"{significant(value)} tok/s"


def _rate_tick(value: float) -> str:
    return short(si_label(value, "").strip())


def _time_tick(value: float) -> str:
    return short(time_label(value))


def short(label: str) -> str:
    """A round number without its zeros: 50 ms for 50.0 ms."""
    return re.sub(r"\.0+(?= |$)", "", label)
