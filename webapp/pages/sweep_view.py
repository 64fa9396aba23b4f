"""Two knobs turned through their values: the form, a chart, a table, and the same as CSV.

The page asks ``webapp.answers`` what ``POST /api/v1/sweep`` asks, and draws the document.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from urllib.parse import urlencode

from engine.catalog.hardware import HardwareSpec
from engine.catalog.models import ModelSpec, all_models
from engine.catalog.units import bytes_label, significant, time_label
from engine.errors import EngineError, InvalidRequest
from engine.refusals import refused
from engine.simulator.efficiency import DEFAULT_ENGINE, engine_ids
from engine.simulator.search.axes import KNOBS, KnobValue
from engine.simulator.search.axis_text import read_values
from engine.simulator.search.document import at_field
from webapp.answers import Question
from webapp.computing import Computer
from webapp.i18n import Texts
from webapp.line_chart import ChartWords, Line, LineStyle, Plot, plot
from webapp.pages.elsewhere import hardware_by_category
from webapp.pages.own import Described, read_described
from webapp.pages.query import Knobs
from webapp.pages.refusal_words import RefusalWords, refusal_words
from webapp.pages.simulator_curves import short
from webapp.pages.simulator_question import CACHES, WEIGHTS
from webapp.schemas.search import MAX_CELLS, SHORT_CELLS

METRICS = ("ttft", "itl", "e2e", "tokens_per_s", "memory", "usd_per_mtok")
USUAL_VALUES: Mapping[str, str] = {
    "model": "llama-3.2-1b, llama-3.1-8b, llama-3.1-70b",
    "hardware": "rtx-4090, a100-80-sxm, h100-sxm",
    "devices": "1, 2, 4, 8",
    "weights": "bf16, fp8, int4-g128",
    "kv": "bf16, fp8",
    "activations": "bf16, fp8",
    "times": "ideal, typical",
    "engine": "vllm, transformers",
    "batch": "1:256:x2",
    "prompt_tokens": "128:32768:x2",
    "output_tokens": "16:2048:x2",
    "context_tokens": "1024:65536:x2",
    "usd_per_hour": "1, 2, 4",
    "memory_utilization": "0.7, 0.8, 0.9, 1",
    **{name: "0.25:4:x2" for name in KNOBS if name.endswith("_factor")},
}
"""Values that the form puts in when a knob is chosen."""
MOST_LINES = 8
MOST_ROWS = 64
MOST_POINTS = 256
USUAL = Described("llama-3.1-8b", "h100-sxm")
_STYLES: tuple[LineStyle, ...] = ("1", "2", "3", "4", "5")
_WIDE_SPREAD = 20.0
_MOST_VALUES_TEXT = 2000
_NO_KNOB = ""


@dataclass(frozen=True, slots=True)
class SweepQuestion:
    """What all cells share, the two knobs with their values as text, and what is shown."""

    described: Described = USUAL
    devices: int = 1
    weights: str = "bf16"
    kv: str = "bf16"
    times: str = "typical"
    engine: str = DEFAULT_ENGINE
    batch: int = 1
    prompt: int = 1024
    output: int = 256
    usd: float | None = None
    utilization: int = 90
    x: str = "batch"
    x_values: str = USUAL_VALUES["batch"]
    y: str = "weights"
    y_values: str = USUAL_VALUES["weights"]
    metric: str = "itl"

    @property
    def query(self) -> str:
        """The query string that asks this."""
        names = ("devices", "weights", "kv", "times", "engine", "batch", "prompt", "output",
                 "utilization", "x", "x_values", "y", "y_values", "metric")  # fmt: skip
        given = {**self.described.fields(), **{name: getattr(self, name) for name in names}}
        return urlencode(given if self.usd is None else {**given, "usd": self.usd})

    def body(self) -> dict[str, object]:
        """The question as ``POST /api/v1/sweep`` takes it.

        Raises:
            InvalidRequest: values are wrong, or there are too many cells (names the field).
        """
        axes = [_axis("x", self.x, self.x_values)]
        if self.y != _NO_KNOB:
            axes.append(_axis("y", self.y, self.y_values))
        cells = 1
        for axis in axes:
            cells *= len(cast("Sequence[KnobValue]", axis["values"]))
        if cells > MAX_CELLS:
            raise refused("cells_at_most", field="x_values", high=f"{MAX_CELLS:,}")
        base = {
            "model": self.described.model_value(),
            "hardware": self.described.hardware_value(),
            "devices": self.devices,
            "weights": self.weights,
            "kv": self.kv,
            "times": self.times,
            "engine": self.engine,
            "batch": self.batch,
            "prompt_tokens": self.prompt,
            "output_tokens": self.output,
            "usd_per_hour": self.usd,
            "memory_utilization": self.utilization / 100,
        }
        return {"base": base, "axes": axes}


def _axis(field: str, knob: str, text: str) -> dict[str, object]:
    try:
        return {"knob": knob, "values": list(read_values(knob, text))}
    except InvalidRequest as error:
        raise at_field(error, f"{field}_values") from None


def read_sweep_question(query: Mapping[str, str]) -> SweepQuestion:
    """The question in a query string. A second knob that is the first again is left out."""
    knobs, usual = Knobs(query), SweepQuestion()
    x = knobs.choice("x", usual.x, tuple(KNOBS))
    y = knobs.choice("y", usual.y, (_NO_KNOB, *KNOBS))
    return SweepQuestion(
        described=read_described(knobs, usual.described),
        devices=knobs.whole("devices", usual.devices, 1, 64),
        weights=knobs.text("weights", usual.weights),
        kv=knobs.text("kv", usual.kv),
        times=knobs.choice("times", usual.times, ("typical", "ideal")),
        engine=knobs.text("engine", usual.engine),
        batch=knobs.whole("batch", usual.batch, 1, 4096),
        prompt=knobs.whole("prompt", usual.prompt, 1, 1_048_576),
        output=knobs.whole("output", usual.output, 1, 131_072),
        usd=knobs.optional("usd", 0, 10_000),
        utilization=knobs.whole("utilization", usual.utilization, 1, 100),
        x=x,
        x_values=knobs.text("x_values", USUAL_VALUES[x], _MOST_VALUES_TEXT),
        y=_NO_KNOB if y == x else y,
        y_values=knobs.text("y_values", USUAL_VALUES.get(y, ""), _MOST_VALUES_TEXT),
        metric=knobs.choice("metric", usual.metric, METRICS),
    )


@dataclass(frozen=True, slots=True)
class SweptTable:
    """Rows of the first knob, columns of the second; a cell is its value and whether it fits."""

    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, bool], ...]], ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class SweptView:
    """The answer: a chart where a knob has numbers, and the table."""

    cells: int
    plot: Plot | None
    table: SweptTable
    all_fit: bool


@dataclass(frozen=True, slots=True)
class SweepView:
    """The form with its choices, and the answer, or why there is none (field, reason)."""

    question: SweepQuestion
    models: tuple[ModelSpec, ...]
    hardware: Mapping[str, tuple[HardwareSpec, ...]]
    engines: tuple[str, ...]
    knobs: tuple[tuple[str, str, str], ...]
    metrics: tuple[tuple[str, str], ...]
    weights: tuple[str, ...] = WEIGHTS
    caches: tuple[str, ...] = CACHES
    answer: SweptView | None = None
    refusal: RefusalWords | None = None


def sweep_form(question: SweepQuestion, said: Texts) -> SweepView:
    """The form alone."""
    return SweepView(
        question,
        all_models(),
        hardware_by_category(),
        engine_ids(),
        tuple(
            (name, said.gettext(knob.meaning), USUAL_VALUES[name]) for name, knob in KNOBS.items()
        ),
        tuple((name, metric_name(name, said)) for name in METRICS),
    )


async def sweep_answer(question: SweepQuestion, computer: Computer, said: Texts) -> SweepView:
    """The form and the answer, made beside the event loop."""
    view = sweep_form(question, said)
    try:
        asked = Question("sweep", {**question.body(), "metrics": [question.metric, "fits"]})
        made = await computer.answer(asked, long=_cells(asked) > SHORT_CELLS)
        return replace(view, answer=swept_view(question, json.loads(made), said))
    except EngineError as error:
        return replace(view, refusal=refusal_words(error, said))


async def sweep_as_csv(question: SweepQuestion, computer: Computer) -> bytes:
    """All metrics of all cells as CSV.

    Raises:
        EngineError: whatever is wrong with the question (names the field).
    """
    asked = Question("sweep", question.body(), "csv")
    return await computer.answer(asked, long=_cells(asked) > SHORT_CELLS)


def _cells(asked: Question) -> int:
    count = 1
    for axis in cast("list[dict[str, list[KnobValue]]]", asked.body["axes"]):
        count *= len(axis["values"])
    return count


def sweep_messages() -> set[str]:
    """The engine's words for its knobs, for translators."""
    return {knob.meaning for knob in KNOBS.values()}


def swept_view(question: SweepQuestion, document: dict[str, Any], said: Texts) -> SweptView:
    """The document of a sweep as a chart and a table."""
    rows: list[KnobValue] = document["axes"][0]["values"]
    several = len(document["axes"]) > 1
    columns: list[KnobValue] = document["axes"][1]["values"] if several else [""]
    metric = document["metrics"][question.metric]
    values, fits = metric["values"], document["metrics"]["fits"]["values"]
    grid = [values[i : i + len(columns)] for i in range(0, len(values), len(columns))]
    held = [fits[i : i + len(columns)] for i in range(0, len(fits), len(columns))]
    name, shown = metric_name(question.metric, said), partial(_shown, question.metric)
    shown_columns = columns[:MOST_LINES]
    table = SweptTable(
        question.x,
        tuple(_written(value) for value in shown_columns) if several else (name,),
        tuple(
            (_written(row), tuple((shown(v), f) for v, f in zip(line, fit, strict=True)))
            for row, line, fit in (
                (row, line[:MOST_LINES], fit[:MOST_LINES])
                for row, line, fit in zip(rows[:MOST_ROWS], grid, held, strict=False)
            )
        ),
        len(values) - len(shown_columns) * len(rows[:MOST_ROWS]),
    )
    lines = _lines(rows, columns, grid)
    turned = not lines and several
    if turned:
        lines = _lines(columns, rows, [list(line) for line in zip(*grid, strict=True)])
    x = question.y if turned else question.x
    return SweptView(
        len(values),
        _plot(lines, x, name, shown, said) if lines else None,
        table,
        all(fits),
    )


def _lines(
    places: Sequence[KnobValue], names: Sequence[KnobValue], grid: Sequence[Sequence[float | None]]
) -> list[Line]:
    """A line for each name over the places; none where places are no numbers, or one alone."""
    if len(set(places)) < 2 or not all(isinstance(place, int | float) for place in places):
        return []
    every = -(-len(places) // MOST_POINTS)
    order = sorted(range(len(places)), key=lambda index: float(places[index]))[::every]
    lines: list[Line] = []
    for column, name in enumerate(names[:MOST_LINES]):
        points = tuple((float(places[index]), grid[index][column]) for index in order)
        if any(value is not None for _, value in points):
            lines.append(Line(_written(name), points, _STYLES[column % len(_STYLES)]))
    return lines


def _plot(
    lines: list[Line], knob: str, name: str, shown: Callable[[float | None], str], said: Texts
) -> Plot:
    words = ChartWords(
        id="sweep",
        title=f"{name} · {said.gettext(KNOBS[knob].meaning)}",
        description=said.gettext("Predicted: one line for each value of the other knob."),
        x=f"{knob} [{KNOBS[knob].unit}]" if KNOBS[knob].unit else knob,
        y=name,
        x_value=_written,
        y_value=shown,
        y_tick=lambda value: short(shown(value)) if value else "0",
    )
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points if y is not None]
    return plot(words, lines, log_x=_is_wide(xs), log_y=_is_wide(ys))


def _is_wide(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis shows the values better."""
    return min(values) > 0 and max(values) / min(values) >= _WIDE_SPREAD


def metric_name(metric: str, said: Texts) -> str:
    """A metric in the reader's words."""
    return {
        "ttft": said.gettext("time to first token (TTFT)"),
        "itl": said.gettext("between tokens (ITL)"),
        "e2e": said.gettext("whole answer"),
        "tokens_per_s": said.gettext("tokens/s of all requests"),
        "memory": said.gettext("memory of all devices"),
        "usd_per_mtok": said.gettext("US$ a million output tokens"),
    }[metric]


def _shown(metric: str, value: float | None) -> str:
    if value is None:
        return "—"
    if metric in ("ttft", "itl", "e2e"):
        return time_label(value)
    if metric == "memory":
        return bytes_label(value).partition(" / ")[0]
    return significant(value)


def _written(value: KnobValue) -> str:
    return value if isinstance(value, str) else f"{value:,.12g}"
