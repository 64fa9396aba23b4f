"""Stages that hold the layers one after the other: what a step costs when it is divided over them.

A step goes through all S stages and takes T. The slowest stage, with ceil(L / S) of L layers,
takes its share q of T. Divided into m microbatches, each of which takes T by itself, a step takes

    T (1 + (m - 1) q)     from an empty pipeline: the bubble of GPipe (arXiv 1811.06965)
    T max(1, m q)         in the steady state, where the next step follows at once

One sequence can't be divided: alone it gains memory from stages, and no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.catalog.device import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.scheduling.plan import SequenceShape
from engine.simulator.cost_model import CostModel, PricedStep
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.layout import Layout
from engine.simulator.roofline import Bound, PricedOperator
from engine.simulator.step_shape import whole_count
from engine.simulator.work import Work


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``layers`` on ``stages`` devices, as evenly as whole layers can be."""

    stages: int
    layers: int

    @property
    def slowest(self) -> float:
        """The share of all layers that the slowest stage holds."""
        return -(-self.layers // self.stages) / self.layers

    def microbatches(self, sequences: float) -> int:
        """How many parts a step of so many sequences is divided into: one a stage at most."""
        return max(min(self.stages, int(sequences)), 1)

    def from_empty(self, latency: float, microbatches: int) -> float:
        """Seconds until the last microbatch leaves a pipeline that was empty before the first."""
        return latency * (1 + (microbatches - 1) * self.slowest)

    def steady(self, latency: float, microbatches: int) -> float:
        """Seconds from step to step, where each microbatch starts its next one when it can."""
        return latency * max(1.0, microbatches * self.slowest)

    def bubble(self, microbatches: int) -> float:
        """The part of the stages' time that is idle in a step from an empty pipeline."""
        return 1 - microbatches / (self.stages * (1 + (microbatches - 1) * self.slowest))


@dataclass(frozen=True, slots=True)
class PipelinedCost:
    """A step in the steady state of a pipeline, made of ``microbatches`` times ``part``.

    Each microbatch reads the weights again. ``operators`` are of one of them.
    """

    part: PricedStep
    microbatches: int
    shape: StepShape
    pipeline: Pipeline

    @property
    def time(self) -> float:
        return self.pipeline.steady(self.part.time, self.microbatches)

    @property
    def time_from_empty(self) -> float:
        """Seconds of the step if it finds the pipeline empty: prompts that arrive together."""
        return self.pipeline.from_empty(self.part.time, self.microbatches)

    @property
    def flops(self) -> float:
        return self.microbatches * self.part.flops

    @property
    def bytes(self) -> float:
        return self.microbatches * self.part.bytes

    @property
    def bound(self) -> Bound:
        return self.part.bound

    @property
    def intensity(self) -> float:
        return self.part.intensity

    @property
    def operators(self) -> tuple[PricedOperator, ...]:
        return self.part.operators


class PipelinedCostModel:
    """Prices steps of a model in stages: ``whole`` prices a part on its way through all of them."""

    def __init__(self, whole: CostModel, layout: Layout) -> None:
        self.whole = whole
        self.pipeline = Pipeline(layout.stages, whole.model.num_layers)

    @property
    def model(self) -> ModelSpec:
        return self.whole.model

    @property
    def hardware(self) -> HardwareSpec:
        return self.whole.hardware

    @property
    def step(self) -> DecoderStep:
        return self.whole.step

    def cost(self, shapes: Sequence[SequenceShape]) -> PipelinedCost:
        """The price of one step over a batch of at least one sequence."""
        return self.divide(self.step.measure(shapes), len(shapes))

    def cost_of(self, shape: StepShape) -> PipelinedCost:
        """The price of a step of that shape, all of whose sequences sample one position."""
        return self.divide(shape, shape.sampled)

    def divide(self, shape: StepShape, sequences: float) -> PipelinedCost:
        """The price of a step of that shape, over so many sequences."""
        parts = self.pipeline.microbatches(sequences)
        return PipelinedCost(self.whole.cost_of(divided(shape, parts)), parts, shape, self.pipeline)


def divided(shape: StepShape, parts: int) -> StepShape:
    """One of so many equal parts of a step; all counts are linear in its sequences."""
    if parts == 1:
        return shape
    work = tuple(Work(*(whole_count(count / parts) for count in counts)) for counts in shape.work)
    return StepShape(whole_count(shape.tokens / parts), whole_count(shape.sampled / parts), work)
