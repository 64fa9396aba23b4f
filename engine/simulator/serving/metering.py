"""Adds up what steps compute and move, and what the devices could have."""

from __future__ import annotations

from collections.abc import Sequence

from engine.catalog.device import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.scheduling.plan import SequenceShape
from engine.simulator.cost_model import CostModel, PricedStep
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.pipeline import PipelinedCostModel
from engine.simulator.roofline import RooflineCurve
from engine.simulator.step_cost import StepCostModel
from engine.simulator.typical import TypicalCostModel
from engine.simulator.work import Work


def roofline_curve(cost_model: CostModel) -> RooflineCurve | None:
    """The roofline of all devices of one unit; None of a cost model that has none."""
    if isinstance(cost_model, PipelinedCostModel):
        one = roofline_curve(cost_model.whole)
        stages = cost_model.pipeline.stages
        return None if one is None else RooflineCurve(one.bandwidth * stages, one.peak * stages)
    if isinstance(cost_model, TypicalCostModel):
        return cost_model.ideal.curve
    return cost_model.curve if isinstance(cost_model, StepCostModel) else None


class MeteredCostModel:
    """A cost model that adds up ``flops`` and ``bytes`` of the steps that it prices for a loop."""

    def __init__(self, cost_model: CostModel) -> None:
        self._cost_model = cost_model
        # Of a typical step these are the ideal ones, which are quicker to ask for directly.
        self._meter = cost_model.ideal if isinstance(cost_model, TypicalCostModel) else cost_model
        self.flops = 0.0
        self.bytes = 0.0

    @property
    def model(self) -> ModelSpec:
        return self._cost_model.model

    @property
    def hardware(self) -> HardwareSpec:
        return self._cost_model.hardware

    @property
    def step(self) -> DecoderStep:
        return self._cost_model.step

    def cost(self, shapes: Sequence[SequenceShape]) -> PricedStep:
        """The price of one step over a batch of at least one sequence, which is counted."""
        cost = self._cost_model.cost(shapes)
        self._add(cost.shape, 1)
        return cost

    def cost_of(self, shape: StepShape) -> PricedStep:
        """The price of a step of that shape. It is not counted: ``count`` is told of stretches."""
        return self._cost_model.cost_of(shape)

    def count(self, shapes: Sequence[StepShape]) -> None:
        """Count steps of the same tokens and samples, in whose other counts prices are linear.

        So the price of the mean shape, times their number, is the sum of their prices.
        """
        steps = len(shapes)
        first = shapes[0]
        work: list[Work] = []
        for place in range(len(first.work)):
            counts = [sum([shape.work[place][i] for shape in shapes]) / steps for i in range(3)]
            work.append(Work(*counts))  # pyright: ignore[reportArgumentType]
        self._add(StepShape(first.tokens, first.sampled, tuple(work)), steps)

    def _add(self, shape: StepShape, steps: int) -> None:
        cost = self._meter.cost_of(shape)
        self.flops += steps * cost.flops
        self.bytes += steps * cost.bytes
