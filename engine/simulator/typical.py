"""Typical times: the same operators as the ideal roofline, at the efficiency devices reach.

    model = TypicalCostModel(get_model("llama-3.1-8b"), get_hardware("h100-sxm"), engine="vllm")
    cost = model.cost([SequenceShape(prefix_tokens=512, new_tokens=1, samples=True)])
    cost.time        seconds of the step
    cost.parts       Parts(operators, launch, scheduler, sampling, communication), s; adds up to it
    cost.efficiency  ideal time over typical time
    model.first_token_overhead   s that a first token takes beside its steps (host, HTTP)
    model.ideal      the StepCostModel of the same scenario

``TypicalCostModel`` goes wherever a ``CostModel`` does: ``RooflineExecutor(model)`` runs a
serving simulation at typical speed. A step of known size costs about 5 us to price.

``estimates`` makes times of whole requests of it, with intervals.

Efficiencies come from ``engine.simulator.efficiency``: published figures of kernels, calibrated
on published measurements (``engine.simulator.validation`` scores them). Engines: ``engine_ids()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from engine.catalog.device import HardwareSpec, Interconnect
from engine.catalog.models import ModelSpec
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.efficiency import DEFAULT_ENGINE, Setting, engine_ids, no_such_engine, resolve
from engine.simulator.layout import ONE_DEVICE, Layout
from engine.simulator.links import DEFAULT_NETWORK
from engine.simulator.roofline import Bound, PricedOperator
from engine.simulator.step_cost import StepCost, StepCostModel
from engine.simulator.step_price import OutsideCore, Parts, core_time, outside_core, with_core
from engine.simulator.step_terms import StepTerms

__all__ = ["TypicalCost", "TypicalCostModel"]


class IdealModel(Protocol):
    """Prices steps at the roofline."""

    def cost_of(self, shape: StepShape) -> StepCost: ...


class KnowsIdeal(Protocol):
    """A model of typical times with the roofline of the same steps."""

    @property
    def ideal(self) -> IdealModel: ...


_MAX_REMEMBERED = 8192


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
            raise no_such_engine()
        self.ideal = StepCostModel(model, hardware, weights, kv, activations, layout, network)
        self.engine = engine
        self.setting = Setting(hardware, self.ideal.formats, engine, layout, network=network)
        self.rates = resolve(self.setting)
        self._terms = step_terms(self.ideal.step)
        self._remembered: dict[tuple[int, int], OutsideCore[float]] = {}

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
        kind = (shape.tokens, shape.sampled)
        outside = self._remembered.get(kind)
        if outside is None:
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            outside = outside_core(self._terms.of(shape), self.rates)
            self._remembered[kind] = outside
        parts = with_core(outside, core_time(*self._terms.core(shape), self.rates), self.rates)
        return TypicalCost(parts.time, parts, shape, self)


@lru_cache(maxsize=256)
def step_terms(step: DecoderStep) -> StepTerms:
    """What builds the terms of a model's steps: the same on every device, so made once."""
    return StepTerms(step)
