"""Where a model's parameters, FLOPs and bytes are, part by part: the picture of lesson 5."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.catalog.hardware import get_hardware
from engine.catalog.models import ModelSpec, get_model
from engine.catalog.parameters import count_parameters, layer_parameters
from engine.catalog.units import si_label
from engine.errors import EngineError
from engine.inference.messages import EngineInfo
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep
from engine.simulator.formats import resolve_formats
from engine.simulator.machine.typical import dense_spec
from engine.simulator.operators import Operator, Role
from webapp.i18n import N_, Texts
from webapp.pages.query import Knobs

RUNNING = "running"
SHIPPED = "smollm2-135m"
MOST_POWER, USUAL_POWER = 17, 10
"""The slider's prompt is two to this power."""

# FLOPs and bytes follow from the model alone; formats have to be looked up on some device.
_ANY_HARDWARE = "h100-sxm"
_FORMAT = "bf16"
_LABELLED = 0.16
"""The share of a bar that has room for a name, also on a phone."""


class Part(StrEnum):
    """Parts of a decoder, in the order in which a token passes them."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    CORE = "core"
    FFN = "ffn"
    HEAD = "head"
    REST = "rest"


NAMES: Mapping[Part, str] = {
    Part.EMBEDDING: N_("embedding"),
    Part.ATTENTION: N_("attention's matrices"),
    Part.CORE: N_("scores and KV cache"),
    Part.FFN: N_("feed-forward"),
    Part.HEAD: N_("LM head"),
    Part.REST: N_("norms and sums"),
}


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a bar: from ``left`` over ``width``, in percent. ``words``: value and share."""

    part: Part
    name: str
    left: float
    width: float
    words: str
    labelled: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """One quantity, divided among the parts. ``slices`` holds all of them, also the empty ones."""

    name: str
    total: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class PartsQuestion:
    """``model``: an id of the catalogue, or ``RUNNING``; ``tokens`` in prompt and cache."""

    model: str
    power: int

    @property
    def tokens(self) -> int:
        return 2**self.power


@dataclass(frozen=True, slots=True)
class PartsView:
    """``idle``: the share of the parameters that one token does not use (experts)."""

    question: PartsQuestion
    name: str
    bars: tuple[Bar, ...]
    layers: int
    matrices: int
    idle: str
    refusal: str = ""


def read_parts(query: Mapping[str, str]) -> PartsQuestion:
    """The question in a query string; what it lacks is the running model and a usual prompt."""
    knobs = Knobs(query)
    return PartsQuestion(
        knobs.text("model", RUNNING), knobs.whole("power", USUAL_POWER, 0, MOST_POWER)
    )


def parameter_parts(spec: ModelSpec) -> dict[Part, float]:
    """Parameters by part; a tied LM head has none of its own."""
    whole = count_parameters(spec)
    layers = [layer_parameters(spec, layer) for layer in range(spec.num_layers)]
    attention = sum(layer.mixer for layer in layers)
    rest = sum(layer.rest for layer in layers)
    return {
        Part.EMBEDDING: whole.embedding + whole.positions,
        Part.ATTENTION: attention,
        Part.CORE: 0,
        Part.FFN: sum(layer.total for layer in layers) - attention - rest,
        Part.HEAD: whole.lm_head,
        Part.REST: rest + whole.final_norm,
    }


def operator_parts(operators: Iterable[Operator]) -> list[tuple[Part, Operator]]:
    """Which part each operator of a step belongs to; they come in the order in which they run."""
    block = Part.EMBEDDING
    found: list[tuple[Part, Operator]] = []
    for operator in operators:
        name = operator.name
        if name.startswith("attention ") and block is Part.EMBEDDING:
            block = Part.ATTENTION
        elif name.startswith("mlp ") and block is Part.ATTENTION:
            block = Part.FFN
        elif name.startswith(("final ", "lm head")):
            block = Part.HEAD
        found.append((_part_of(operator, block), operator))
    return found


_AROUND = frozenset(
    {"attention norm", "attention residual", "norm after attention", "mlp norm", "mlp residual",
     "norm after mlp", "final norm"}
)  # fmt: skip


def _part_of(operator: Operator, block: Part) -> Part:
    if operator.role is not Role.PRODUCT:
        return Part.CORE
    return Part.REST if operator.name in _AROUND else block


def parts_view(question: PartsQuestion, info: EngineInfo | None, said: Texts) -> PartsView:
    """The bars of a model; with a refusal and none, where the model is unknown or not simulated."""
    try:
        spec = _spec(question.model, info)
        formats = resolve_formats(get_hardware(_ANY_HARDWARE), _FORMAT, _FORMAT).storage
        step = DecoderStep(spec, formats)
    except (EngineError, TypeError, ValueError) as error:
        return PartsView(question, question.model, (), 0, 0, "", said.gettext(str(error)))
    tokens = question.tokens
    prefill = step.operators(step.measure((SequenceShape(0, tokens, True),)))
    decode = step.operators(step.measure((SequenceShape(tokens, 1, True),)))
    count = count_parameters(spec)
    bars = (
        _bar(said.gettext("parameters"), parameter_parts(spec), "", said),
        _bar(said.gettext("FLOPs of the prefill"), _sum(prefill, flops=True), "FLOP", said),
        _bar(said.gettext("bytes of the prefill"), _sum(prefill, flops=False), "B", said),
        _bar(said.gettext("FLOPs of one decode step"), _sum(decode, flops=True), "FLOP", said),
        _bar(said.gettext("bytes of one decode step"), _sum(decode, flops=False), "B", said),
    )
    idle = f"{count.idle_experts / count.total:.0%}" if count.idle_experts else ""
    name = spec.id or question.model
    return PartsView(question, name, bars, spec.num_layers, spec.mlp.matrices, idle)


def _spec(model: str, info: EngineInfo | None) -> ModelSpec:
    if model != RUNNING:
        return get_model(model)
    return get_model(SHIPPED) if info is None else dense_spec(info.model, info.model_name)


def _sum(operators: Sequence[Operator], *, flops: bool) -> dict[Part, float]:
    sums = dict.fromkeys(Part, 0.0)
    for part, operator in operator_parts(operators):
        sums[part] += operator.flops if flops else operator.bytes
    return sums


def _bar(name: str, parts: Mapping[Part, float], unit: str, said: Texts) -> Bar:
    total = sum(parts.values())
    left = 0.0
    slices: list[Slice] = []
    for part in Part:
        share = parts[part] / total
        words = f"{si_label(parts[part], unit).strip()} · {share:.1%}" if parts[part] else "—"
        label = said.gettext(NAMES[part])
        slices.append(Slice(part, label, left, 100 * share, words, share >= _LABELLED))
        left += 100 * share
    return Bar(name, si_label(total, unit).strip(), tuple(slices))
