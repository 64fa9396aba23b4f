"""Adds up what steps compute and move, without pricing every step twice."""

from __future__ import annotations

from collections.abc import Sequence

from engine.catalog.device import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.scheduling.plan import SequenceShape
from engine.simulator.cost_model import CostModel, PricedStep
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.work import Work

_MOST_KINDS = 4096

_Kind = tuple[int, int, tuple[bool, ...]]


class WorkMeter:
    """FLOPs and bytes of many steps.

    Steps of equal numbers of tokens and samples differ only in counts in which both are linear: so
    the price of their mean shape, times their number, is the sum of their prices.
    """

    def __init__(self, cost_model: CostModel) -> None:
        self._cost_model = cost_model
        self._counts: dict[_Kind, list[int]] = {}
        self._flops = 0.0
        self._bytes = 0.0

    def add(self, shape: StepShape, steps: int = 1) -> None:
        """Count steps of one number of tokens and samples; ``shape.work`` is their sum."""
        work = shape.work
        kind = (shape.tokens, shape.sampled, tuple([bool(item[2]) for item in work]))
        counts = self._counts.get(kind)
        if counts is None:
            if len(self._counts) >= _MOST_KINDS:
                self._settle()
            counts = self._counts[kind] = [0] * (1 + 3 * len(work))
        counts[0] += steps
        place = 1
        for pairs, reads, tokens in work:
            counts[place] += pairs
            counts[place + 1] += reads
            counts[place + 2] += tokens
            place += 3

    def _settle(self) -> None:
        for (tokens, sampled, _), counts in self._counts.items():
            steps = counts[0]
            work = tuple(
                Work(*(count / steps for count in counts[place : place + 3]))  # pyright: ignore[reportArgumentType]
                for place in range(1, len(counts), 3)
            )
            cost = self._cost_model.cost_of(StepShape(tokens, sampled, work))
            self._flops += steps * cost.flops
            self._bytes += steps * cost.bytes
        self._counts.clear()

    @property
    def flops(self) -> float:
        """FLOPs of all steps so far, on all devices of the group."""
        self._settle()
        return self._flops

    @property
    def bytes(self) -> float:
        """Bytes that all steps so far moved, on all devices of the group."""
        self._settle()
        return self._bytes


class MeteredCostModel:
    """A cost model whose every priced step is counted by a meter."""

    def __init__(self, cost_model: CostModel, meter: WorkMeter) -> None:
        self._cost_model = cost_model
        self._meter = meter

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
        """The price of one step over a batch of at least one sequence."""
        return self.cost_of(self.step.measure(shapes))

    def cost_of(self, shape: StepShape) -> PricedStep:
        """The price of a step of that shape."""
        self._meter.add(shape)
        return self._cost_model.cost_of(shape)
