"""The same prompt elsewhere: the form's values, and the simulator's answer in words.

A plain ``GET`` form: the page and the fragment read the same query, so it works without scripts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.catalog.hardware import HardwareSpec, all_hardware
from engine.catalog.models import ModelSpec, all_models
from engine.catalog.units import bytes_label, time_label
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


@dataclass(frozen=True, slots=True)
class Question:
    """What the form asks. ``here_*_ms`` is what the last run on this machine measured."""

    model: str = "smollm2-135m"
    hardware: str = "h100-sxm"
    weights: str = "bf16"
    prompt_tokens: int = 64
    output_tokens: int = 64
    here_ttft_ms: float | None = None
    here_itl_ms: float | None = None


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
        return bytes_label(self.report.memory.total)

    @property
    def capacity(self) -> str:
        return bytes_label(self.report.memory.capacity)

    @property
    def here_ttft_ratio(self) -> float | None:
        """How many times as long the first token took here."""
        here = self.question.here_ttft_ms
        return None if here is None else here / 1e3 / self.report.ttft

    @property
    def here_itl_ratio(self) -> float | None:
        here = self.question.here_itl_ms
        return None if here is None or not self.report.itl else here / 1e3 / self.report.itl


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


def _hardware_by_category() -> dict[str, tuple[HardwareSpec, ...]]:
    devices = all_hardware()
    known = {
        category: tuple(device for device in devices if device.category == category)
        for category in CATEGORIES
    }
    other = tuple(device for device in devices if device.category not in CATEGORIES)
    return {name: members for name, members in {**known, "other": other}.items() if members}


def _integer(text: str | None, default: int, most: int) -> int:
    """A whole number between 1 and ``most``; what is not a number becomes the default."""
    if text is None or not text.strip().isascii() or not text.strip().isdigit():
        return default
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
        prompt_tokens=_integer(
            query.get("prompt_tokens"), default.prompt_tokens, MOST_PROMPT_TOKENS
        ),
        output_tokens=_integer(
            query.get("output_tokens"), default.output_tokens, MOST_OUTPUT_TOKENS
        ),
        here_ttft_ms=_positive(query.get("here_ttft_ms")),
        here_itl_ms=_positive(query.get("here_itl_ms")),
    )


def elsewhere_form(question: Question) -> ElsewhereView:
    """The form alone."""
    return ElsewhereView(question, all_models(), _hardware_by_category())


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
