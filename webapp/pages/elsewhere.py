"""The same prompt elsewhere: the form's values, and the simulator's answer in words.

A plain ``GET`` form: the page and the fragment read the same query, so it works without scripts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.catalog.hardware import HardwareSpec, all_hardware
from engine.catalog.models import ModelSpec, all_models
from engine.catalog.units import bytes_label, significant, time_label
from engine.errors import EngineError
from engine.simulator.report import SimulationReport
from engine.simulator.scenario import Scenario
from webapp.charts import StripChart, strip_chart
from webapp.simulations import SimulationRunner

CATEGORIES = (
    "cpu",
    "unified",
    "edge",
    "consumer-gpu",
    "workstation-gpu",
    "gpu",
    "datacenter-gpu",
    "tpu",
)
WEIGHTS = ("fp32", "bf16", "int8", "int4-g128")
MOST_PROMPT_TOKENS = 131_072
MOST_OUTPUT_TOKENS = 2_048
_ANY_LENGTH = 10**9  # a run here is not cut to what the form can ask
_MEASURED_NAME = re.compile(r"This machine \((?P<device>.*)\)")


@dataclass(frozen=True, slots=True)
class Here:
    """The last run on this machine: what it ran, and what was measured."""

    model: str = ""
    weights: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What the form asks, and the run on this machine that the answer may stand beside."""

    model: str = "smollm2-135m"
    hardware: str = "h100-sxm"
    weights: str = "bf16"
    prompt_tokens: int = 64
    output_tokens: int = 64
    here: Here = Here()

    @property
    def same_prefill(self) -> bool:
        """Whether the run here did this very prefill: model, number format and prompt length."""
        mine = (self.model, self.weights, self.prompt_tokens)
        return mine == (self.here.model, self.here.weights, self.here.prompt_tokens)

    @property
    def same_decode(self) -> bool:
        """Whether its decode steps were these as well: the answer's length counts, too."""
        return self.same_prefill and self.output_tokens == self.here.output_tokens


def ratio_words(ratio: float) -> tuple[str, bool]:
    """A ratio as people say it, and whether it is a multiple: 25.0 (times), or 80%, 1/16 (of)."""
    if ratio >= 0.995:
        return significant(max(ratio, 1.0)), True
    if ratio >= 0.1:
        return f"{ratio:.0%}", False
    return f"1/{float(f'{1 / ratio:.1e}'):,.0f}", False


@dataclass(frozen=True, slots=True)
class Prediction:
    """The simulator's answer as the page words it."""

    question: Question
    report: SimulationReport
    strip: StripChart

    @property
    def ttft(self) -> str:
        return time_label(self.report.ttft)

    @property
    def itl(self) -> str | None:
        return None if self.report.itl is None else time_label(self.report.itl)

    @property
    def total(self) -> str:
        return time_label(self.report.makespan)

    @property
    def needed(self) -> str:
        limits = self.report.capacity
        return bytes_label(float(limits.placement.needed(limits.load)))

    @property
    def capacity(self) -> str:
        """The part of the memory that may be filled."""
        return bytes_label(float(self.report.capacity.placement.usable))

    @property
    def here_ttft(self) -> tuple[str, bool] | None:
        """How the first token's time here compares, if the same prompt ran; see ratio_words."""
        here = self.question.here.ttft_ms
        if here is None or not self.question.same_prefill:
            return None
        return ratio_words(here / 1e3 / self.report.ttft)

    @property
    def here_itl(self) -> tuple[str, bool] | None:
        """The same for the time between tokens."""
        here = self.question.here.itl_ms
        if here is None or not self.report.itl or not self.question.same_decode:
            return None
        return ratio_words(here / 1e3 / self.report.itl)

    @property
    def positions(self) -> int:
        """Positions that prompt and answer take."""
        return self.report.scenario.cached_tokens

    @property
    def context(self) -> int:
        """Positions that the model was made for."""
        return self.report.cost_model.model.max_context


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer."""

    message: str


@dataclass(frozen=True, slots=True)
class ElsewhereView:
    """The form with its choices, and the answer if something was asked."""

    question: Question
    models: tuple[ModelSpec, ...]
    hardware: Mapping[str, tuple[HardwareSpec, ...]]
    answer: Prediction | None = None
    refusal: Refusal | None = None


def measured_device(device: HardwareSpec) -> str | None:
    """The device's own name where this machine itself is meant, to be told in any language."""
    match = _MEASURED_NAME.fullmatch(device.name) if device.kind == "measured" else None
    return match["device"] if match else None


def hardware_by_category() -> dict[str, tuple[HardwareSpec, ...]]:
    """All devices by the category that a choice of hardware groups them by."""
    devices = all_hardware()
    known = {
        category: tuple(device for device in devices if device.category == category)
        for category in CATEGORIES
    }
    other = tuple(device for device in devices if device.category not in CATEGORIES)
    return {name: members for name, members in {**known, "other": other}.items() if members}


def _whole(text: str | None, most: int) -> int | None:
    """A whole number between 1 and ``most``; None of what is not a number."""
    if text is None or not text.strip().isascii() or not text.strip().isdigit():
        return None
    return min(most, max(1, int(text.strip()[:12])))


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


def read_question(query: Mapping[str, str]) -> Question:
    """The question in a query string; numbers are brought into range, names are checked later."""
    default = Question()
    weights = query.get("weights", default.weights)
    return Question(
        model=query.get("model", default.model)[:100],
        hardware=query.get("hardware", default.hardware)[:100],
        weights=weights if weights in WEIGHTS else default.weights,
        prompt_tokens=_whole(query.get("prompt_tokens"), MOST_PROMPT_TOKENS)
        or default.prompt_tokens,
        output_tokens=_whole(query.get("output_tokens"), MOST_OUTPUT_TOKENS)
        or default.output_tokens,
        here=_read_here(query),
    )


def _read_here(query: Mapping[str, str]) -> Here:
    return Here(
        model=query.get("here_model", "")[:100],
        weights=query.get("here_weights", "")[:20],
        prompt_tokens=_whole(query.get("here_prompt_tokens"), _ANY_LENGTH),
        output_tokens=_whole(query.get("here_output_tokens"), _ANY_LENGTH),
        ttft_ms=_positive(query.get("here_ttft_ms")),
        itl_ms=_positive(query.get("here_itl_ms")),
    )


def elsewhere_form(question: Question) -> ElsewhereView:
    """The form alone."""
    return ElsewhereView(question, all_models(), hardware_by_category())


async def elsewhere_answer(question: Question, simulations: SimulationRunner) -> ElsewhereView:
    """The form and the prediction, or why there is none."""
    view = elsewhere_form(question)
    scenario = Scenario(
        model=question.model,
        hardware=question.hardware,
        weights=question.weights,
        prompt_tokens=question.prompt_tokens,
        output_tokens=question.output_tokens,
    )
    try:
        report = await simulations.run(scenario)
    except EngineError as error:
        return replace(view, refusal=Refusal(error.message))
    strip = strip_chart(report.ttft, report.itl or 0.0, question.output_tokens - 1)
    return replace(view, answer=Prediction(question, report, strip))
