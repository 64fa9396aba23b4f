"""How much KV cache any model takes at a context and batch, and how many requests still fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.catalog.hardware import all_hardware
from engine.catalog.kv_cache import KvGroup, kv_groups, state_bytes_per_sequence
from engine.catalog.model_spec import ModelSpec
from engine.catalog.models import all_models
from engine.catalog.units import bytes_label
from engine.simulator.capacity import capacity
from engine.simulator.deployment import Deployment
from engine.simulator.features import Features
from engine.simulator.run import Batch
from webapp.i18n import Texts
from webapp.line_chart import ChartWords, Cross, Line, Plot, plot
from webapp.pages.query import Knobs

LEAST, MOST = 8, 20
"""Contexts on offer are powers of two from 2**8 to 2**20 positions."""
MOST_TOGETHER = 10
"""Batches on offer are powers of two up to 2**10 requests."""
KV_FORMATS = ("bf16", "fp8", "int8", "int4-g32")
CHUNK = 2048
"""Prompt tokens a step, for which room for activations is kept."""


@dataclass(frozen=True, slots=True)
class KvQuestion:
    """What the form asks: ``2**together`` requests with a context of ``2**exponent`` positions."""

    model: str = "llama-2-13b"
    hardware: str = "h100-sxm"
    kv: str = "bf16"
    exponent: int = 10
    together: int = 4

    @property
    def context(self) -> int:
        return 2**self.exponent

    @property
    def batch(self) -> int:
        return 2**self.together


@dataclass(frozen=True, slots=True)
class KvFormula:
    """A group of like layers: how many bytes each of them keeps, and for which positions."""

    layers: int
    numbers: str
    entry: str
    every: int
    window: int | None


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """One device's memory in hundredths of the picture's width: the weights from 0 on, the cache
    from there, and where what an engine may fill ends."""

    weights: float
    cache: float
    usable: float


@dataclass(frozen=True, slots=True)
class KvView:
    """The answer to a question. ``largest`` requests of this context fit; ``chart`` is None where
    not even one fits at any context. Texts of bytes are in decimal and binary units."""

    question: KvQuestion
    per_token: str
    formulas: tuple[KvFormula, ...]
    state: str | None
    one: str
    all: str
    usable: str
    weights: str
    bar: MemoryBar
    largest: int
    fits: bool
    beyond: int | None
    chart: Plot | None


def read_kv_question(query: Mapping[str, str]) -> KvQuestion:
    """The question in a query string; a model or device that is not known gives way to ours."""
    knobs, ours = Knobs(query), KvQuestion()
    models, devices = model_names(), hardware_names()
    return KvQuestion(
        model=knobs.choice("model", ours.model, models),
        hardware=knobs.choice("hardware", ours.hardware, devices),
        kv=knobs.choice("kv", ours.kv, KV_FORMATS),
        exponent=knobs.whole("context_log2", ours.exponent, LEAST, MOST),
        together=knobs.whole("batch_log2", ours.together, 0, MOST_TOGETHER),
    )


def largest_batches(
    model: str, hardware: str, kv: str, contexts: tuple[int, ...]
) -> tuple[int, ...]:
    """The largest batch that fits beside the weights (16 bits each), for each context.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``Deployment.cost_model``.
    """
    deployment = Deployment(model, hardware, kv=kv)
    features = Features(chunk_tokens=CHUNK)
    return tuple(
        capacity(deployment, Batch(1, context, 1), features).largest_batch for context in contexts
    )


def kv_view(question: KvQuestion, said: Texts) -> KvView:
    """Everything that the fragment shows.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``Deployment.cost_model``.
    """
    deployment = Deployment(question.model, question.hardware, kv=question.kv)
    placement = deployment.placement()
    model, kv = deployment.model_spec, placement.step.formats.kv
    contexts = tuple(2**n for n in range(LEAST, MOST + 1) if 2**n <= model.max_context)
    batches = largest_batches(question.model, question.hardware, question.kv, contexts)
    (largest,) = largest_batches(
        question.model, question.hardware, question.kv, (question.context,)
    )
    one = float(model.kv_cache_bytes(question.context, kv.bits))
    state = state_bytes_per_sequence(model)
    return KvView(
        question=question,
        per_token=bytes_label(float(model.kv_bytes_per_token(kv.bits))),
        formulas=tuple(_formula(model, group, kv.bits) for group in kv_groups(model, kv.bits)),
        state=bytes_label(state) if state else None,
        one=bytes_label(one),
        all=bytes_label(one * question.batch),
        usable=bytes_label(float(placement.usable)),
        weights=bytes_label(float(placement.weights)),
        bar=_bar(float(placement.weights), one * question.batch, float(placement.usable)),
        largest=largest,
        fits=question.batch <= largest,
        beyond=model.max_context if question.context > model.max_context else None,
        chart=_chart(question, contexts, batches, said) if any(batches) else None,
    )


def _bar(weights: float, cache: float, usable: float) -> MemoryBar:
    whole = max(weights + cache, usable)
    return MemoryBar(100 * weights / whole, 100 * cache / whole, 100 * usable / whole)


def _formula(model: ModelSpec, group: KvGroup, bits: float) -> KvFormula:
    """The numbers of one entry spelled out where they are plain keys and values."""
    entry = float(group.bytes_per_entry)
    plain = model.mla is None and entry == 2 * model.kv_size * bits / 8
    numbers = f"2 × {model.num_kv_heads} × {model.head_dim} × {bits / 8:g} B" if plain else ""
    return KvFormula(
        group.layers, numbers, f"{entry:,.10g} B", group.tokens_per_entry, group.window
    )


def _chart(
    question: KvQuestion, contexts: tuple[int, ...], batches: tuple[int, ...], said: Texts
) -> Plot:
    words = ChartWords(
        id="kv-batches",
        title=said.gettext("The largest batch that fits, over the context"),
        description=said.gettext("Predicted; both axes are logarithmic."),
        x=said.gettext("context, positions"),
        y=said.gettext("requests together"),
        x_value=lambda value: f"{value:,.0f}",
        y_value=lambda value: f"{value:,.0f}",
    )
    points = tuple(
        (float(context), float(batch) if batch else None)
        for context, batch in zip(contexts, batches, strict=True)
    )
    crosses = [Cross(question.context, f"{question.context:,}")]
    if question.context > contexts[-1]:
        crosses = []
    line = Line(said.gettext("largest batch (predicted)"), points, "decode")
    return plot(words, [line], log_x=True, log_y=True, crosses=crosses)


def model_names() -> tuple[str, ...]:
    """Ids of the models on offer."""
    return tuple(model.id for model in all_models())


def hardware_names() -> tuple[str, ...]:
    """Ids of the devices on offer."""
    return tuple(device.id for device in all_hardware())
