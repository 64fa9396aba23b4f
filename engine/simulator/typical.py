"""Typical times: the same operators as the ideal roofline, at the efficiency devices reach.

    model = TypicalCostModel(get_model("llama-3.1-8b"), get_hardware("h100-sxm"), engine="vllm")
    cost = model.cost([SequenceShape(prefix_tokens=512, new_tokens=1, samples=True)])
    cost.time        seconds of the step
    cost.parts       Parts(operators, launch, scheduler, sampling, communication), s; adds up to it
    cost.efficiency  ideal time over typical time
    model.first_token_overhead   s that a first token takes beside its steps (host, HTTP)
    model.ideal      the StepCostModel of the same scenario

``TypicalCostModel`` goes wherever a ``CostModel`` does: ``RooflineExecutor(model)`` runs a
serving simulation at typical speed. A step costs about 20 us to price.

    result = typical(Scenario(...), engine="vllm")
    result.ttft, result.tpot, result.e2e, result.tokens_per_s    Estimate(value, p10, p90)
    result.ideal                                                 the same four at the roofline

Eight of ten measurements of that metric on that segment of devices lay between p10 and p90, by
the residuals of calibration. ``interval(metric, hardware)`` gives the two factors alone.

Efficiencies come from ``engine.simulator.efficiency``: published figures of kernels, calibrated
on published measurements (``engine.simulator.validation`` scores them). Engines: ``engine_ids()``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.catalog.device import HardwareSpec, Interconnect
from engine.catalog.hardware import get_hardware
from engine.catalog.models import ModelSpec, get_model
from engine.errors import UnknownName
from engine.scheduling.plan import SequenceShape
from engine.simulator.cost_model import CostModel
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.efficiency import DEFAULT_ENGINE, Setting, engine_ids, resolve
from engine.simulator.intervals import Metric, interval
from engine.simulator.layout import ONE_DEVICE, Layout
from engine.simulator.links import DEFAULT_NETWORK
from engine.simulator.roofline import Bound, PricedOperator
from engine.simulator.scenario import Scenario
from engine.simulator.step_cost import StepCost, StepCostModel
from engine.simulator.step_price import Parts, price
from engine.simulator.step_shape import growing_contexts, scaled_shape
from engine.simulator.step_terms import StepTerms

__all__ = ["Estimate", "TypicalCost", "TypicalCostModel", "TypicalResult", "interval", "typical"]


class IdealModel(Protocol):
    """Prices steps at the roofline."""

    def cost_of(self, shape: StepShape) -> StepCost: ...


class KnowsIdeal(Protocol):
    """A model of typical times with the roofline of the same steps."""

    @property
    def ideal(self) -> IdealModel: ...


@dataclass(frozen=True, slots=True)
class TypicalCost:
    """The price of a step: ``parts`` of its ``time`` in seconds, and its shape.

    FLOPs, bytes, bound and the list of operators are the ideal ones: they do not depend on how
    well a device does.
    """

    time: float
    parts: Parts[float]
    shape: StepShape
    _model: KnowsIdeal

    @property
    def ideal(self) -> StepCost:
        """The same step at the roofline."""
        return self._model.ideal.cost_of(self.shape)

    @property
    def flops(self) -> float:
        return self.ideal.flops

    @property
    def bytes(self) -> float:
        return self.ideal.bytes

    @property
    def bound(self) -> Bound:
        return self.ideal.bound

    @property
    def intensity(self) -> float:
        return self.ideal.intensity

    @property
    def operators(self) -> tuple[PricedOperator, ...]:
        return self.ideal.operators

    @property
    def efficiency(self) -> float:
        """Ideal time over typical time."""
        return self.ideal.time / self.time


class TypicalCostModel:
    """Prices steps as an engine runs them, on one device or one group of a layout.

    ``weights``, ``kv``, ``activations``, ``layout`` and ``network`` are as for the ideal model;
    ``engine`` is one of ``engine_ids()``.

    Raises:
        UnknownName, InvalidRequest: a format, the engine or the layout is wrong.
        UnsupportedModel: the model has a part that is not simulated (field "model").
    """

    def __init__(
        self,
        model: ModelSpec,
        hardware: HardwareSpec,
        weights: str = "bf16",
        kv: str = "bf16",
        activations: str | None = None,
        layout: Layout = ONE_DEVICE,
        engine: str = DEFAULT_ENGINE,
        network: Interconnect = DEFAULT_NETWORK,
    ) -> None:
        if engine not in engine_ids():
            raise UnknownName(
                f"no engine of this name; choose one of {', '.join(engine_ids())}", field="engine"
            )
        self.ideal = StepCostModel(model, hardware, weights, kv, activations, layout, network)
        self.engine = engine
        self.setting = Setting(hardware, self.ideal.formats, engine, layout, network=network)
        self.rates = resolve(self.setting)
        self._terms = StepTerms(self.ideal.step)

    @property
    def model(self) -> ModelSpec:
        return self.ideal.model

    @property
    def hardware(self) -> HardwareSpec:
        return self.ideal.hardware

    @property
    def step(self) -> DecoderStep:
        return self.ideal.step

    @property
    def first_token_overhead(self) -> float:
        """Seconds that a request waits for the host and its connection before its first token."""
        return self.rates.first_token

    def cost(self, shapes: Sequence[SequenceShape]) -> TypicalCost:
        """The price of one step over a batch of at least one sequence."""
        return self.cost_of(self.step.measure(shapes))

    def cost_of(self, shape: StepShape) -> TypicalCost:
        """The price of a step of that shape."""
        parts = price(self._terms.of(shape), self.rates)
        return TypicalCost(parts.time, parts, shape, self)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """TTFT, mean TPOT (None with one output token) and E2E of a batch [s], and its tokens/s."""

    ttft: float
    tpot: float | None
    e2e: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A typical value with the interval that held eight of ten measurements of its kind."""

    value: float
    p10: float
    p90: float


@dataclass(frozen=True, slots=True)
class TypicalResult:
    """A scenario's ideal times, and its typical ones with intervals."""

    scenario: Scenario
    engine: str
    ideal: RunTimes
    ttft: Estimate
    tpot: Estimate | None
    e2e: Estimate
    tokens_per_s: Estimate


def run_times(
    model: CostModel, batch: int, prompt: int, output: int, first_token: float = 0.0
) -> RunTimes:
    """Times of ``batch`` equal requests: all prompts in one step, then one token each a step.

    The decode steps are integrated over the growing context at two Gauss points.
    """
    ttft = model.cost_of(scaled_shape(model.step, [(batch, 0, prompt)])).time + first_token
    steps = output - 1
    tpot = None
    if steps:
        contexts = growing_contexts(prompt, steps)
        times = [model.cost_of(scaled_shape(model.step, [(batch, c, 1)])).time for c in contexts]
        tpot = math.fsum(times) / len(times)
    e2e = ttft + steps * (tpot or 0.0)
    return RunTimes(ttft, tpot, e2e, batch * output / e2e)


def typical(scenario: Scenario, engine: str = DEFAULT_ENGINE) -> TypicalResult:
    """The scenario as the engine would run it, beside the roofline.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``TypicalCostModel``.
    """
    hardware = get_hardware(scenario.hardware)
    model = TypicalCostModel(
        get_model(scenario.model),
        hardware,
        scenario.weights,
        scenario.kv,
        scenario.activations,
        Layout(tensor=scenario.devices),
        engine,
    )
    size = (scenario.batch, scenario.prompt_tokens, scenario.output_tokens)
    times = run_times(model, *size, first_token=model.first_token_overhead)
    alone = scenario.batch == 1

    def estimate(metric: Metric, value: float) -> Estimate:
        low, high = interval(metric, hardware)
        return Estimate(value, value * low, value * high)

    step = Metric.DECODE if alone else Metric.BATCHED
    total = Metric.LATENCY if alone else Metric.BATCHED
    slow = estimate(total, times.e2e)
    return TypicalResult(
        scenario,
        engine,
        run_times(model.ideal, *size),
        estimate(Metric.TTFT, times.ttft),
        None if times.tpot is None else estimate(step, times.tpot),
        slow,
        Estimate(
            times.tokens_per_s,
            times.tokens_per_s * times.e2e / slow.p90,
            times.tokens_per_s * times.e2e / slow.p10,
        ),
    )
