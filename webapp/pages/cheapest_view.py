"""The cheapest deployment for a load: the form, what was found, why not the others, the front.

The page asks ``webapp.answers`` what ``POST /api/v1/search`` asks, and words the document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar
from urllib.parse import urlencode

from engine.catalog.hardware import HardwareSpec, published_hardware
from engine.catalog.models import ModelSpec, all_models
from engine.catalog.units import si_label, significant, time_label
from engine.errors import EngineError
from engine.simulator.search.curves import REFUSALS
from engine.simulator.search.search_document import ASSUMPTIONS, read_requirement
from webapp.answers import Question
from webapp.computing import Computer
from webapp.i18n import Texts
from webapp.line_chart import ChartWords, Line, Plot, plot
from webapp.pages.query import Knobs
from webapp.pages.refusal_words import RefusalWords, refusal_words
from webapp.pages.simulator_curves import short
from webapp.pages.simulator_question import WEIGHTS

DEVICES = (1, 2, 4, 8, 16)
FORMATS = tuple(name for name in WEIGHTS if name not in ("fp32", "fp16"))
MOST_BEST = 12
MOST_FAILED = 24
FINALISTS = 2
_MISSES: Mapping[str, re.Pattern[str]] = {
    "ttft": re.compile(r"TTFT: a request alone takes (?P<value>[\d.e+-]+) s"),
    "itl": re.compile(r"ITL: a request alone takes (?P<value>[\d.e+-]+) s a token"),
    "load": re.compile(r"load: (?P<value>\d+) replicas do not keep the limits at this rate"),
}


@dataclass(frozen=True, slots=True)
class CheapestQuestion:
    """A load in requests/s, limits in ms, and what may be chosen; no ``hardware``: all with a
    price."""

    model: str = "llama-3.1-70b"
    rate: float = 4.0
    prompt: int = 1000
    output: int = 200
    ttft: float = 500.0
    itl: float = 30.0
    hardware: tuple[str, ...] = ()
    devices: tuple[int, ...] = (1, 2, 4, 8)
    weights: tuple[str, ...] = ("bf16", "fp8")
    replicas: int = 64
    utilization: int = 90
    asked: bool = False

    MOST_HARDWARE: ClassVar[int] = 128

    @property
    def query(self) -> str:
        """The query string that asks this; lists as several pairs of one name."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        del given["asked"]
        return urlencode(given, doseq=True)

    def body(self) -> dict[str, object]:
        """The question as ``POST /api/v1/search`` takes it; times in s."""
        return {
            "model": self.model,
            "rate": self.rate,
            "prompt_tokens": self.prompt,
            "output_tokens": self.output,
            "ttft": self.ttft / 1e3,
            "itl": self.itl / 1e3,
            "hardware": list(self.hardware) or None,
            "devices": list(self.devices),
            "weights": list(self.weights),
            "max_replicas": self.replicas,
            "memory_utilization": self.utilization / 100,
        }


def read_cheapest_question(items: Sequence[tuple[str, str]]) -> CheapestQuestion:
    """The question in the pairs of a query; lists come as several pairs of one name."""
    knobs, usual = Knobs(dict(items)), CheapestQuestion()

    def several(name: str) -> list[str]:
        return list(dict.fromkeys(value[:100] for key, value in items if key == name and value))

    devices = tuple(count for count in DEVICES if str(count) in several("devices"))
    weights = tuple(name for name in FORMATS if name in several("weights"))
    return CheapestQuestion(
        model=knobs.text("model", usual.model),
        rate=knobs.real("rate", usual.rate, 0.001, 100_000),
        prompt=knobs.whole("prompt", usual.prompt, 1, 1_048_576),
        output=knobs.whole("output", usual.output, 2, 131_072),
        ttft=knobs.real("ttft", usual.ttft, 0.001, 1e8),
        itl=knobs.real("itl", usual.itl, 0.001, 1e8),
        hardware=tuple(several("hardware")[: CheapestQuestion.MOST_HARDWARE]),
        devices=devices or usual.devices,
        weights=weights or usual.weights,
        replicas=knobs.whole("replicas", usual.replicas, 1, 256),
        utilization=knobs.whole("utilization", usual.utilization, 1, 100),
        asked="rate" in knobs.query,
    )


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What a simulated run of a deployment gave."""

    ttft: str
    ttft_p99: str
    itl: str
    itl_p99: str
    good: str
    keeps: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """A deployment that keeps the limits."""

    name: str
    hardware: str
    devices: int
    weights: str
    replicas: int
    price: str
    ttft: str
    itl: str
    batch: str
    confirmed: Confirmed | None


@dataclass(frozen=True, slots=True)
class Missed:
    """A deployment that does not, and the limit that it misses."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class FoundView:
    """The answer; counts are of all, the lists hold the first."""

    found: int
    best: tuple[Choice, ...]
    missed: int
    failed: tuple[Missed, ...]
    front: Plot | None
    front_rows: tuple[tuple[str, str, str, str], ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheapestView:
    """The form with its choices, and the answer, or why there is none (field, reason)."""

    question: CheapestQuestion
    models: tuple[ModelSpec, ...]
    hardware: tuple[HardwareSpec, ...]
    devices: tuple[int, ...] = DEVICES
    weights: tuple[str, ...] = FORMATS
    answer: FoundView | None = None
    refusal: RefusalWords | None = None


def cheapest_form(question: CheapestQuestion) -> CheapestView:
    """The form alone."""
    return CheapestView(question, all_models(), published_hardware())


async def search_json(question: CheapestQuestion, computer: Computer) -> bytes:
    """The document that ``POST /api/v1/search`` gives, made in a process of its own.

    Raises:
        EngineError: a name or a number is wrong (names the field), or too many are waiting.
    """
    body = question.body()
    read_requirement(body).check_names()
    return await computer.answer(Question("search", {**body, "finalists": FINALISTS}), long=True)


async def cheapest_answer(
    question: CheapestQuestion, computer: Computer, said: Texts
) -> CheapestView:
    """The form and the answer, made in a process of its own; the form alone where nothing is
    asked yet."""
    view = cheapest_form(question)
    if not question.asked:
        return view
    try:
        made = await search_json(question, computer)
        return replace(view, answer=found_view(json.loads(made), said))
    except EngineError as error:
        return replace(view, refusal=refusal_words(error, said))


def found_view(document: dict[str, Any], said: Texts) -> FoundView:
    """The document of a search in the reader's words."""
    names = {spec.id: spec.name for spec in published_hardware()}
    front: list[dict[str, Any]] = document["front"]
    return FoundView(
        document["found"],
        tuple(_choice(item, names) for item in document["best"][:MOST_BEST]),
        document["missed"],
        tuple(
            Missed(_name(item, names), miss_words(item["fails"], said))
            for item in document["failed"][:MOST_FAILED]
        ),
        _front(front, said) if front else None,
        tuple(
            (
                _name(item, names),
                f"{item['batch']:,}",
                time_label(item["itl"]),
                significant(item["tokens_per_s_per_device"]),
            )
            for item in front
        ),
        tuple(map(said.gettext, document["assumptions"])),
    )


def search_messages() -> set[str]:
    """The engine's words that an answer may show, for translators."""
    return {*ASSUMPTIONS, *REFUSALS}


def miss_words(fails: str, said: Texts) -> str:
    """Why a deployment was not chosen; other reasons of the engine as they are."""
    for kind, pattern in _MISSES.items():
        match = pattern.fullmatch(fails)
        if match is None:
            continue
        value = match["value"]
        if kind == "ttft":
            template = said.gettext("TTFT: a request alone takes {time}")
            return template.format(time=time_label(float(value)))
        if kind == "itl":
            template = said.gettext("ITL: a request alone takes {time} a token")
            return template.format(time=time_label(float(value)))
        template = said.gettext("Load: {count} replicas do not keep the limits")
        return template.format(count=value)
    return said.gettext(fails)


def _name(item: Mapping[str, Any], names: Mapping[str, str]) -> str:
    return (
        f"{item['devices']} × {names.get(item['hardware'], item['hardware'])} · {item['weights']}"
    )


def _choice(item: Mapping[str, Any], names: Mapping[str, str]) -> Choice:
    run = item.get("confirmed")
    confirmed = run and Confirmed(
        time_label(run["ttft"]),
        time_label(run["ttft_p99"]),
        time_label(run["itl"]),
        time_label(run["itl_p99"]),
        f"{run['good_share']:.0%}",
        run["keeps"],
    )
    price = item["usd_per_hour"]
    return Choice(
        _name(item, names),
        item["hardware"],
        item["devices"],
        item["weights"],
        item["replicas"],
        "—" if price is None else f"${significant(price)}",
        time_label(item["ttft"]),
        time_label(item["itl"]),
        significant(item["batch"]),
        confirmed,
    )


def _front(front: Sequence[Mapping[str, Any]], said: Texts) -> Plot:
    """Throughput against latency, where nothing is better in both."""
    points = tuple((1e3 * item["itl"], item["tokens_per_s_per_device"]) for item in front)
    words = ChartWords(
        id="front",
        title=said.gettext("Throughput of a device over the time between tokens"),
        description=said.gettext(
            "Predicted: the deployments that no other beats in both; both axes are logarithmic."
        ),
        x=said.gettext("time between tokens, ms"),
        y=said.gettext("tokens/s a device"),
        x_value=significant,
        y_value=significant,
        y_tick=lambda value: short(si_label(value, "").strip()),
    )
    return plot(words, [Line(said.gettext("front"), points, "decode")], log_x=True, log_y=True)
