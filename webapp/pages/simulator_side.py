"""One side of the simulator's page: its numbers in words, ideal and typical, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from engine.catalog.device import HardwareSpec
from engine.catalog.units import bytes_label, significant, time_label
from engine.scheduling.plan import SequenceShape
from engine.simulator.capacity import Capacity, capacity
from engine.simulator.cost_model import CostModel, PricedStep
from engine.simulator.deployment import TIMES, Deployment, Times, ideal_model
from engine.simulator.energy import energy
from engine.simulator.estimates import Estimate, estimates
from engine.simulator.money import hourly_price, token_prices
from engine.simulator.pipeline import PipelinedCostModel
from engine.simulator.run import BatchRun, run_batch
from engine.simulator.step_cost import StepCost, StepCostModel
from engine.simulator.step_price import Parts
from engine.simulator.step_shape import repeated_shape
from engine.simulator.typical import TypicalCostModel
from webapp.pages.layout_warnings import LayoutWarning, layout_warnings
from webapp.pages.simulator_question import Side

Phase = Literal["prefill", "decode"]
PARTS = ("operators", "launch", "scheduler", "sampling", "communication")


@dataclass(frozen=True, slots=True)
class Answer:
    """One number, ideal and typical; ``low`` to ``high`` are its bounds in ``Estimates``."""

    ideal: str
    typical: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the memory bar: its width in percent of the bar, and its size in words."""

    name: str
    width: float
    words: str


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a typical step, in percent of it and in words."""

    name: str
    width: float
    words: str


@dataclass(frozen=True, slots=True)
class Money:
    """US dollars a million tokens, at the lowest and the highest hourly price found."""

    hour: str
    prompt: str
    output: str | None
    source: str


@dataclass(frozen=True, slots=True)
class SideView:
    """Everything that the page says of one scenario."""

    letter: str
    side: Side
    hardware: HardwareSpec
    models: Mapping[Times, CostModel]
    runs: Mapping[Times, BatchRun]
    prefill: PricedStep
    decode: PricedStep
    roofline: StepCostModel
    ttft: Answer
    itl: Answer | None
    e2e: Answer
    throughput: Answer
    capacity: Capacity
    memory: tuple[Segment, ...]
    parts: Mapping[Phase, tuple[Share, ...]]
    money: Money | None
    joules: str | None
    max_context: int
    warnings: tuple[LayoutWarning, ...]

    @property
    def model_id(self) -> str:
        return self.roofline.model.id

    @property
    def fits(self) -> bool:
        return self.capacity.fits

    @property
    def too_long(self) -> bool:
        """Whether prompt and answer take more positions than the model was made for."""
        return self.side.prompt + self.side.output - 1 > self.max_context

    @property
    def limit_is_the_model(self) -> bool:
        """Whether memory has room for more positions than the model was made for."""
        longest = self.capacity.longest_context
        return longest is None or longest > self.max_context

    @property
    def verdict(self) -> Literal["start", "stream", "even"]:
        """Which of the two makes up most of a reader's wait."""
        run = self.runs["typical"]
        if run.ttft > 2 * run.decode_time:
            return "start"
        return "stream" if run.decode_time > 2 * run.ttft else "even"


def side_view(letter: str, side: Side) -> SideView:
    """The numbers of one scenario.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: the scenario is wrong (names the field).
    """
    deployments: dict[Times, Deployment] = {times: side.deployment(times) for times in TIMES}
    models: dict[Times, CostModel] = {
        times: deployment.cost_model() for times, deployment in deployments.items()
    }
    runs: dict[Times, BatchRun] = {
        times: run_batch(deployment, side.load, side.features)
        for times, deployment in deployments.items()
    }
    hardware = deployments["ideal"].hardware_spec
    roofline = ideal_model(models["ideal"])
    prompts = runs["ideal"].prompts
    shapes: dict[Phase, SequenceShape] = {
        "prefill": SequenceShape(prompts.cached, prompts.new, True),
        "decode": SequenceShape(side.prompt + side.output // 2, 1, True),
    }
    steps: dict[Phase, StepCost] = {
        phase: roofline.cost_of(repeated_shape(roofline.step, [(prompts.sequences, shape)]))
        for phase, shape in shapes.items()
    }
    ideal, usual = runs["ideal"], estimates(runs["typical"])
    held = capacity(deployments["ideal"], side.load, side.features)
    return SideView(
        letter,
        side,
        hardware,
        models,
        runs,
        steps["prefill"],
        steps["decode"],
        roofline,
        _answer(ideal.ttft, usual.ttft, time_label),
        None
        if ideal.tpot is None or usual.tpot is None
        else _answer(ideal.tpot, usual.tpot, time_label),
        _answer(ideal.e2e, usual.e2e, time_label),
        _answer(ideal.tokens_per_s, usual.tokens_per_s, significant),
        held,
        _memory(held),
        {
            phase: _parts(models["typical"], prompts.sequences, shape)
            for phase, shape in shapes.items()
        },
        _money(runs["typical"], side.usd),
        _joules(runs["typical"], side.idle / 100),
        roofline.model.max_context,
        layout_warnings(roofline),
    )


def _answer(ideal: float, usual: Estimate, said: Callable[[float], str]) -> Answer:
    return Answer(*map(said, (ideal, usual.value, usual.p10, usual.p90)))


def _memory(held: Capacity) -> tuple[Segment, ...]:
    """The fullest device: what it holds of its memory, to scale; what is over goes beyond."""
    placement, load = held.placement, held.load
    sizes = {
        "weights": float(placement.weights),
        "kv": float(load.sequences * placement.kv_bytes(load.tokens)),
        "activations": float(placement.activations(load.step_tokens, load.sequences)),
    }
    used, usable = sum(sizes.values()), float(placement.usable)
    whole = max(used, usable)
    segments = [Segment(n, 100 * size / whole, bytes_label(size)) for n, size in sizes.items()]
    if used <= usable:
        rest = usable - used
        segments.append(Segment("free", 100 * rest / whole, bytes_label(rest)))
    return tuple(segments)


def _parts(model: CostModel, sequences: int, shape: SequenceShape) -> tuple[Share, ...]:
    whole = model.whole if isinstance(model, PipelinedCostModel) else model
    if not isinstance(whole, TypicalCostModel):
        raise TypeError("only a typical step has parts")
    parts: Parts[float] = whole.cost_of(repeated_shape(whole.step, [(sequences, shape)])).parts
    return tuple(
        Share(name, 100 * getattr(parts, name) / parts.time, time_label(getattr(parts, name)))
        for name in PARTS
    )


def _money(run: BatchRun, own: float | None) -> Money | None:
    price = hourly_price(run, own)
    if price is None:
        return None
    low, high = (token_prices(run, each) for each in (price.low, price.high))
    output = None
    if low.output is not None and high.output is not None:
        output = _dollars(low.output, high.output)
    return Money(
        _dollars(price.low, price.high), _dollars(low.prompt, high.prompt), output, price.source
    )


def _dollars(low: float, high: float) -> str:
    texts = [f"${significant(value)}" for value in dict.fromkeys((low, high))]
    return " – ".join(texts)


def _joules(run: BatchRun, idle_share: float) -> str | None:
    spent = energy(run, idle_share)
    if spent is None or spent.output is None:
        return None
    return f"{significant(spent.output.per_token)} J"
