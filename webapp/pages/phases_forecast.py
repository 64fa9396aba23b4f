"""What a prompt and an answer of some length take: the two phases of lesson 7, priced.

``here`` prices with the same predictor that stands beside every real step; ``elsewhere`` with the
simulator's cost models of a catalogued model on catalogued hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.catalog.this_machine import this_machine_if_readable
from engine.errors import EngineUnavailable, InvalidRequest
from engine.inference.messages import EngineInfo, LaneInfo
from engine.scheduling.plan import SequenceShape
from engine.simulator.search.cell import Cell
from engine.simulator.step_cost import StepCostModel
from engine.simulator.typical import TypicalCostModel
from webapp.charts import Roof
from webapp.i18n import N_
from webapp.pages.roofline_view import measured_roof
from webapp.prediction import StepPredictor

NOT_MEASURED = N_("this machine has not been measured, so nothing is predicted for it")
NOT_READY = N_("the engine is not ready yet")
TOO_LONG = N_("prompt and answer are longer together than the model's context")


@dataclass(frozen=True, slots=True)
class StepPrice:
    """One step of one sequence: FLOP, bytes, seconds at the roofline, and as they usually are.

    ``typical`` is None where that is not known, ``spread`` are the seconds that eight of ten
    typical steps lie between; ``after`` is what passes until the next step.
    """

    flops: float
    bytes: float
    ideal: float
    bound: str
    typical: float | None = None
    spread: tuple[float, float] | None = None
    after: float = 0.0


class Pricer(Protocol):
    """Prices steps on one machine. ``step_tokens``: tokens that one step takes at most."""

    @property
    def roof(self) -> Roof: ...
    @property
    def step_tokens(self) -> int | None: ...
    @property
    def max_context(self) -> int: ...
    @property
    def before_first(self) -> float: ...
    def price(self, context: int, new: int) -> StepPrice: ...


@dataclass(frozen=True, slots=True)
class Here:
    """The running model on this machine, in the lane that plain requests take."""

    info: EngineInfo
    lane: LaneInfo
    predictor: StepPredictor
    roof: Roof
    before_first: float = 0.0

    @property
    def step_tokens(self) -> int | None:
        return self.info.max_step_tokens

    @property
    def max_context(self) -> int:
        return self.info.max_context

    def price(self, context: int, new: int) -> StepPrice:
        """A step of ``new`` tokens behind ``context`` cached ones.

        Raises:
            EngineUnavailable: nothing is predicted for this machine.
        """
        found = self.predictor.predict(self.info, self.lane, [(context, new, True, 0)])
        if found is None or found.time_s is None or found.bound is None:
            raise EngineUnavailable(NOT_MEASURED)
        usual = found.typical
        return StepPrice(
            found.flops,
            found.bytes,
            found.time_s,
            found.bound,
            None if usual is None else usual.time_s,
            None if usual is None else (usual.p10_s, usual.p90_s),
            0.0 if usual is None else usual.between_s,
        )


def here(info: EngineInfo | None, predictor: StepPredictor) -> Here:
    """Prices of the running model.

    Raises:
        EngineUnavailable: the engine is not known yet, or this machine was not measured.
    """
    if info is None:
        raise EngineUnavailable(NOT_READY)
    lane = next((lane for lane in info.lanes if lane.weights == info.default_dtype), info.lanes[0])
    roof = measured_roof(this_machine_if_readable(), lane.dtype)
    if roof is None or not predictor.calibrated(info):
        raise EngineUnavailable(NOT_MEASURED)
    return Here(info, lane, predictor, roof)


class Elsewhere:
    """A model of the catalogue on hardware of the catalogue.

    Raises:
        UnknownName, UnsupportedModel: as for ``StepCostModel``.
    """

    step_tokens: int | None = None

    def __init__(self, model: str, hardware: str, weights: str) -> None:
        cell = Cell(model, hardware, weights=weights)
        self._ideal = StepCostModel(cell.model_spec, cell.hardware_spec, weights, "bf16")
        self._usual = TypicalCostModel(cell.model_spec, cell.hardware_spec, weights, "bf16")
        roofline = self._ideal.roofline
        self.roof = Roof(roofline.bandwidth, roofline.matmul)
        self.max_context = self._ideal.model.max_context
        self.before_first = self._usual.first_token_overhead

    def price(self, context: int, new: int) -> StepPrice:
        """A step of ``new`` tokens behind ``context`` cached ones."""
        shapes = [SequenceShape(context, new, True)]
        cost = self._ideal.cost(shapes)
        usual = self._usual.cost(shapes).time
        return StepPrice(cost.flops, cost.bytes, cost.time, cost.bound.value, usual)


@dataclass(frozen=True, slots=True)
class Work:
    """One phase's typical step against the machine: FLOP per byte, and the shares it reaches.

    ``mfu``: share of the arithmetic's peak (arXiv:2204.02311); ``mbu``: share of the bandwidth.
    """

    intensity: float
    bound: str
    mfu: float
    mbu: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds: ``ttft`` and ``itl`` typically (at the roofline where no more is known) and at the
    roofline; ``itl`` is the mean over the growing context, None with one token of answer.
    ``usual`` says whether the typical times are known."""

    ttft: float
    ttft_ideal: float
    itl: float | None
    itl_ideal: float | None
    prefill: Work
    decode: Work
    output: int
    usual: bool

    @property
    def total(self) -> float:
        """Seconds of the whole answer."""
        return self.ttft + (self.output - 1) * (self.itl or 0.0)


def forecast(pricer: Pricer, prompt: int, output: int) -> Forecast:
    """What ``prompt`` tokens in and ``output`` tokens out take.

    Raises:
        InvalidRequest: they do not fit into the model's context (field "prompt").
        EngineUnavailable: nothing is predicted for this machine.
    """
    if prompt + output > pricer.max_context:
        raise InvalidRequest(TOO_LONG, field="prompt")
    steps = prefill_steps(pricer, prompt)
    # A step's time grows linearly with its context, so the one in the middle is the mean.
    decode = pricer.price(prompt + output // 2, 1)
    gap = None if output < 2 else (decode.typical or decode.ideal) + decode.after
    return Forecast(
        ttft=first_token(pricer, steps),
        ttft_ideal=sum(step.ideal for step in steps),
        itl=gap,
        itl_ideal=None if output < 2 else decode.ideal,
        prefill=_work(pricer, steps),
        decode=_work(pricer, [decode]),
        output=output,
        usual=decode.typical is not None,
    )


def prefill_steps(pricer: Pricer, prompt: int) -> list[StepPrice]:
    """The steps of a prompt: one, or as many as the engine cuts it into."""
    most = pricer.step_tokens or prompt
    starts = range(0, prompt, most)
    return [pricer.price(start, min(most, prompt - start)) for start in starts]


def first_token(pricer: Pricer, steps: list[StepPrice]) -> float:
    """Seconds until the first token: the steps, and what passes between them."""
    between = sum(step.after for step in steps[:-1])
    return sum(step.typical or step.ideal for step in steps) + between + pricer.before_first


def compute_bound_from(pricer: Pricer) -> int | None:
    """The shortest prompt whose prefill is bound by arithmetic; None if no step is that long."""
    most = min(pricer.step_tokens or pricer.max_context, pricer.max_context)
    if pricer.price(0, most).bound != "compute":
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if pricer.price(0, middle).bound == "compute":
            high = middle
        else:
            low = middle
    return high


def _work(pricer: Pricer, steps: list[StepPrice]) -> Work:
    flops, moved = sum(step.flops for step in steps), sum(step.bytes for step in steps)
    seconds = sum(step.typical or step.ideal for step in steps)
    rates = (flops / seconds / pricer.roof.peak, moved / seconds / pricer.roof.bandwidth)
    return Work(flops / moved, steps[0].bound, *rates)
