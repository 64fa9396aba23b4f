"""What prices a step: the ideal roofline and the typical time speak one vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.catalog.device import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.roofline import Bound, PricedOperator


class PricedStep(Protocol):
    """The price of one step: FLOPs and bytes on all its devices, and its time in seconds."""

    @property
    def time(self) -> float: ...
    @property
    def flops(self) -> float: ...
    @property
    def bytes(self) -> float: ...
    @property
    def bound(self) -> Bound: ...
    @property
    def intensity(self) -> float: ...
    @property
    def shape(self) -> StepShape: ...
    @property
    def operators(self) -> tuple[PricedOperator, ...]: ...


class CostModel(Protocol):
    """Prices steps of one model on one kind of device."""

    @property
    def model(self) -> ModelSpec: ...
    @property
    def hardware(self) -> HardwareSpec: ...
    @property
    def step(self) -> DecoderStep: ...

    def cost(self, shapes: Sequence[SequenceShape]) -> PricedStep:
        """The price of one step over a batch of at least one sequence."""
        ...

    def cost_of(self, shape: StepShape) -> PricedStep:
        """The price of a step of that shape."""
        ...
