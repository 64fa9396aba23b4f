"""What the fragments of lesson 7 show: two lengths and their two times, and the measured curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec, all_models
from engine.catalog.units import significant, time_label
from engine.errors import EngineError
from engine.inference.messages import EngineInfo
from webapp.charts import StripChart, strip_chart
from webapp.i18n import Texts
from webapp.line_chart import ChartWords, Cross, Line, LineStyle, Plot, plot
from webapp.pages.elsewhere import hardware_by_category
from webapp.pages.phases_forecast import (
    Elsewhere,
    Forecast,
    Pricer,
    StepPrice,
    Work,
    compute_bound_from,
    first_token,
    forecast,
    here,
    prefill_steps,
)
from webapp.pages.query import Knobs
from webapp.prediction import StepPredictor

Phase = Literal["prefill", "decode"]
HERE = "here"
WEIGHTS = ("fp32", "bf16", "fp8", "int8", "int4-g128")
MOST_PROMPT, MOST_OUTPUT = 131_072, 4096
LENGTHS = tuple(2**n for n in range(2, 14))
MOST_POINTS = 12


@dataclass(frozen=True, slots=True)
class LengthsQuestion:
    """A prompt and an answer, and where they run; ``hardware`` "here" is the engine itself."""

    hardware: str = HERE
    model: str = "llama-3.1-8b"
    weights: str = "bf16"
    prompt: int = 256
    output: int = 64

    def pricer(self, info: EngineInfo | None, predictor: StepPredictor) -> Pricer:
        """What prices its steps.

        Raises:
            EngineError: nothing is predicted there, or a name is not known.
        """
        if self.hardware == HERE:
            return here(info, predictor)
        return Elsewhere(self.model, self.hardware, self.weights)


def read_lengths(query: Mapping[str, str]) -> LengthsQuestion:
    """The question in a query string."""
    knobs, default = Knobs(query), LengthsQuestion()
    return LengthsQuestion(
        hardware=knobs.text("hardware", default.hardware),
        model=knobs.text("model", default.model),
        weights=knobs.choice("weights", default.weights, WEIGHTS),
        prompt=knobs.whole("prompt", default.prompt, 1, MOST_PROMPT),
        output=knobs.whole("output", default.output, 1, MOST_OUTPUT),
    )


@dataclass(frozen=True, slots=True)
class WorkRow:
    """A phase beside its machine, in words; shares in percent for the bars."""

    phase: Phase
    intensity: str
    bound: str
    mfu: float
    mbu: float


@dataclass(frozen=True, slots=True)
class LengthsView:
    """The choices of the form, and the prediction, or why there is none."""

    question: LengthsQuestion
    models: tuple[ModelSpec, ...]
    hardware: Mapping[str, tuple[HardwareSpec, ...]]
    weights: tuple[str, ...] = WEIGHTS
    times: Forecast | None = None
    ridge: str = ""
    rows: tuple[WorkRow, ...] = ()
    strip: StripChart | None = None
    refusal: str = ""

    @property
    def ttft(self) -> str:
        return time_label(self._times.ttft)

    @property
    def ttft_ideal(self) -> str:
        return time_label(self._times.ttft_ideal)

    @property
    def itl(self) -> str | None:
        return None if self._times.itl is None else time_label(self._times.itl)

    @property
    def itl_ideal(self) -> str | None:
        return None if self._times.itl_ideal is None else time_label(self._times.itl_ideal)

    @property
    def total(self) -> str:
        return time_label(self._times.total)

    @property
    def reading(self) -> float:
        """Percent of the whole time that passes before the first token."""
        return 100 * self._times.ttft / self._times.total

    @property
    def _times(self) -> Forecast:
        if self.times is None:
            raise ValueError("nothing was predicted")
        return self.times


def lengths_form() -> LengthsView:
    """The form as it opens."""
    return LengthsView(LengthsQuestion(), all_models(), hardware_by_category())


def lengths_view(
    question: LengthsQuestion, info: EngineInfo | None, predictor: StepPredictor, said: Texts
) -> LengthsView:
    """The prediction of two lengths."""
    view = replace(lengths_form(), question=question)
    try:
        pricer = question.pricer(info, predictor)
        times = forecast(pricer, question.prompt, question.output)
    except EngineError as error:
        return replace(view, refusal=said.gettext(error.message))
    works: dict[Phase, Work] = {"prefill": times.prefill, "decode": times.decode}
    return replace(
        view,
        times=times,
        ridge=significant(pricer.roof.ridge),
        rows=tuple(
            WorkRow(phase, significant(w.intensity), w.bound, 100 * w.mfu, 100 * w.mbu)
            for phase, w in works.items()
        ),
        strip=strip_chart(times.ttft, times.itl or 0.0, question.output - 1),
    )


Points = tuple[tuple[float, float], ...]


def read_points(values: Sequence[str]) -> Points:
    """Measured points ``tokens:milliseconds`` of a query; what is not such a pair is left out."""
    found: dict[float, float] = {}
    for value in values[:MOST_POINTS]:
        tokens, _, ms = value.partition(":")
        knobs = Knobs({"tokens": tokens, "ms": ms})
        count, time = knobs.optional("tokens", 1, 1e6), knobs.optional("ms", 1e-3, 1e8)
        if count is not None and time is not None:
            found[count] = time / 1e3
    return tuple(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class SweepView:
    """TTFT over the prompt and ITL over the context: measured points on predicted lines.

    ``refusal``: why no line is predicted; ``from_tokens``: the prompt from which prefill is bound
    by arithmetic, None if none is.
    """

    plots: tuple[Plot, ...] = ()
    refusal: str = ""
    from_tokens: int | None = None


def sweep_view(
    ttft: Points, itl: Points, info: EngineInfo | None, predictor: StepPredictor, said: Texts
) -> SweepView:
    """The two charts. Without a prediction the measured points stand alone."""
    starts, gaps = list[Line](), list[Line]()
    refusal, ridge = "", None
    try:
        pricer = here(info, predictor)
        places = [length for length in LENGTHS if length < pricer.max_context]
        prefills = [prefill_steps(pricer, length) for length in places]
        decodes = [[pricer.price(length, 1)] for length in places]
        ridge = compute_bound_from(pricer)
        starts = _lines(pricer, places, prefills, "prefill", said)
        gaps = _lines(pricer, places, decodes, "decode", said)
    except EngineError as error:
        refusal = said.gettext(error.message)
    measured = said.gettext("measured")
    starts += [Line(measured, ttft, "prefill", "measured")] if ttft else []
    gaps += [Line(measured, itl, "decode", "measured")] if itl else []
    words = (
        _words("sweep-ttft", said.gettext("Time to the first token over the prompt"),
               said.gettext("prompt, tokens"), said.gettext("time to first token"), said),
        _words("sweep-itl", said.gettext("Time between tokens over the context"),
               said.gettext("context, positions"), said.gettext("time between tokens"), said),
    )  # fmt: skip
    marks = ()
    if ridge is not None and ridge >= LENGTHS[0]:
        marks = (Cross(ridge, said.gettext("bound by arithmetic from here")),)
    charts = ((words[0], starts, marks), (words[1], gaps, ()))
    plots = tuple(
        plot(of, lines, log_x=True, log_y=True, crosses=crosses)
        for of, lines, crosses in charts
        if lines
    )
    return SweepView(plots, refusal, ridge)


def _lines(
    pricer: Pricer,
    places: Sequence[int],
    runs: Sequence[list[StepPrice]],
    style: LineStyle,
    said: Texts,
) -> list[Line]:
    """The ideal line, and the typical one with its band where that is known."""
    ideal = tuple(
        (float(at), sum(step.ideal for step in steps))
        for at, steps in zip(places, runs, strict=True)
    )
    lines = [Line(said.gettext("predicted, ideal"), ideal, "4")]
    if all(step.typical is not None for steps in runs for step in steps):
        prefill = style == "prefill"
        usual = [first_token(pricer, steps) if prefill else _gap(steps[0]) for steps in runs]
        band = tuple(
            (value * _ratio(steps, 0), value * _ratio(steps, 1))
            for value, steps in zip(usual, runs, strict=True)
        )
        points = tuple(zip(map(float, places), usual, strict=True))
        lines.append(Line(said.gettext("predicted, typical"), points, "1", band=band))
    return lines


def _gap(step: StepPrice) -> float:
    return (step.typical or step.ideal) + step.after


def _ratio(steps: Sequence[StepPrice], end: Literal[0, 1]) -> float:
    """The lower or upper end of the spread over the typical time."""
    typical = sum(step.typical or 0.0 for step in steps)
    return sum(step.spread[end] if step.spread else 0.0 for step in steps) / typical


def _words(id: str, title: str, x: str, y: str, said: Texts) -> ChartWords:
    return ChartWords(
        id=id,
        title=title,
        description=said.gettext("Both axes are logarithmic."),
        x=x,
        y=y,
        x_value=lambda number: f"{number:,.0f}",
        y_value=time_label,
        y_tick=time_label,
    )
