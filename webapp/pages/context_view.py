"""What one more token costs at a long context: DeepSeek's V3, V3.2 and V4 side by side.

Everything here is computed from the models' shapes when the page is asked for. The published
ratios of the V4 report stand beside ours where they are of the same context and counting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from engine.catalog.models import get_model
from engine.catalog.units import bytes_label, si_label
from engine.simulator.context_cost import (
    ContextCost,
    FlopWeighting,
    context_cost,
    flops_crossover,
)
from webapp.i18n import Texts
from webapp.line_chart import ChartWords, Cross, Line, LineStyle, Plot, plot

BASELINE = "deepseek-v3.2"
MODELS = ("deepseek-v3", BASELINE, "deepseek-v4-pro", "deepseek-v4-flash")
NAMES = {
    "deepseek-v3": "V3",
    BASELINE: "V3.2",
    "deepseek-v4-pro": "V4-Pro",
    "deepseek-v4-flash": "V4-Flash",
}
STYLES: dict[str, LineStyle] = {
    "deepseek-v3": "4",
    BASELINE: "1",
    "deepseek-v4-pro": "2",
    "deepseek-v4-flash": "3",
}
KV_FORMATS = ("fp8", "bf16")
LEAST, MOST = 10, 20
"""Contexts on offer are powers of two from 2**10 to 2**20 positions."""

PUBLISHED_CONTEXT = 2**MOST
PUBLISHED = {"deepseek-v4-pro": ("27%", "10%"), "deepseek-v4-flash": ("10%", "7%")}
"""Of the V4 report (arXiv 2606.19348): FP8-equivalent FLOPs of a token and cache, of V3.2's, at a
context of a million."""


@dataclass(frozen=True, slots=True)
class ContextQuestion:
    """What the form asks: a context of ``2**exponent`` positions, how FLOPs count, the cache."""

    exponent: int = MOST
    weighting: FlopWeighting = FlopWeighting.FP8_EQUIVALENT
    kv: str = "fp8"

    @property
    def context(self) -> int:
        return 2**self.exponent

    @property
    def as_published(self) -> bool:
        """Whether this is what the report's ratios are of."""
        return self == ContextQuestion()


@dataclass(frozen=True, slots=True)
class ModelAtContext:
    """One model's token at the context, beside V3.2's."""

    name: str
    cost: ContextCost
    baseline: ContextCost
    published: tuple[str, str] | None

    @property
    def flops(self) -> str:
        return si_label(self.cost.flops, "FLOP")

    @property
    def kv(self) -> str:
        return bytes_label(float(self.cost.kv_bytes))

    @property
    def flops_share(self) -> str:
        return f"{self.cost.flops / self.baseline.flops:.1%}"

    @property
    def kv_share(self) -> str:
        return f"{float(self.cost.kv_bytes) / float(self.baseline.kv_bytes):.1%}"

    @property
    def parts(self) -> tuple[str, str, str]:
        """Products with weights, attention core and indexer, as shares of the model's FLOPs."""
        cost = self.cost
        products, attention, indexer = (
            f"{part / cost.flops:.0%}" for part in (cost.products, cost.attention, cost.indexer)
        )
        return products, attention, indexer


@dataclass(frozen=True, slots=True)
class ContextView:
    """The page: four models at one context, two curves over all contexts, the crossover."""

    question: ContextQuestion
    models: tuple[ModelAtContext, ...]
    flops: Plot
    kv: Plot
    crossover: int | None

    @property
    def pro(self) -> ModelAtContext:
        return self.models[MODELS.index("deepseek-v4-pro")]

    @property
    def flash(self) -> ModelAtContext:
        return self.models[MODELS.index("deepseek-v4-flash")]


def read_context_question(query: Mapping[str, str]) -> ContextQuestion:
    """The question in a query string; what is not on offer becomes the default."""
    default = ContextQuestion()
    exponent = query.get("context_log2", "")
    offered = {str(number): number for number in range(LEAST, MOST + 1)}
    weightings = {weighting.value: weighting for weighting in FlopWeighting}
    kv = query.get("kv", default.kv)
    return ContextQuestion(
        offered.get(exponent, default.exponent),
        weightings.get(query.get("weighting", ""), default.weighting),
        kv if kv in KV_FORMATS else default.kv,
    )


def context_view(question: ContextQuestion, said: Texts) -> ContextView:
    """Everything that the page shows for a question, in the reader's language."""
    costs = {id: _cost(id, question.exponent, question) for id in MODELS}
    models = tuple(
        ModelAtContext(
            NAMES[id],
            costs[id],
            costs[BASELINE],
            PUBLISHED.get(id) if question.as_published else None,
        )
        for id in MODELS
    )
    crossover = _crossover(question.weighting)
    return ContextView(question, models, *_plots(question, said, crossover), crossover)


def _plots(question: ContextQuestion, said: Texts, crossover: int | None) -> tuple[Plot, Plot]:
    here = Cross(question.context, f"{question.context:,}")
    crosses = [here]
    if crossover is not None:
        crosses.append(Cross(crossover, said.gettext("V4-Pro passes V3.2")))
    positions = said.gettext("context, positions")
    flops = ChartWords(
        id="flops",
        title=said.gettext("FLOPs of one more token (predicted)"),
        description=said.gettext(
            "FLOPs of a decoded token over the context, both logarithmic: V3 rises with every "
            "position, V3.2 from some ten thousand on, the two V4 models last."
        ),
        x=positions,
        y="FLOP",
        x_value=lambda value: f"{value:,.0f}",
        y_value=lambda value: si_label(value, "FLOP"),
    )
    kv = ChartWords(
        id="kv",
        title=said.gettext("KV cache of one sequence (predicted)"),
        description=said.gettext(
            "Bytes of the cache over the context, both logarithmic: all rise in proportion, the "
            "V4 models from a constant window on and about ten times lower."
        ),
        x=positions,
        y=said.gettext("bytes"),
        x_value=lambda value: f"{value:,.0f}",
        y_value=bytes_label,
    )
    return (
        plot(flops, _lines(question, lambda c: c.flops), log_x=True, log_y=True, crosses=crosses),
        plot(
            kv,
            _lines(question, lambda c: float(c.kv_bytes)),
            log_x=True,
            log_y=True,
            crosses=[here],
        ),
    )


def _lines(question: ContextQuestion, value: Callable[[ContextCost], float]) -> list[Line]:
    exponents = range(LEAST, MOST + 1)
    return [
        Line(
            NAMES[id],
            tuple((2.0**n, value(_cost(id, n, question))) for n in exponents),
            style=STYLES[id],
        )
        for id in MODELS
    ]


def _cost(id: str, exponent: int, question: ContextQuestion) -> ContextCost:
    return _costs(id, exponent, question.kv, question.weighting)


@lru_cache(maxsize=512)
def _costs(id: str, exponent: int, kv: str, weighting: FlopWeighting) -> ContextCost:
    return context_cost(get_model(id), 2**exponent, kv, weighting)


@lru_cache(maxsize=8)
def _crossover(weighting: FlopWeighting) -> int | None:
    return flops_crossover(get_model("deepseek-v4-pro"), get_model(BASELINE), weighting)
