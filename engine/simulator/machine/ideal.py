"""The roofline of a lane of the real engine: at the rate of the arithmetic that a step really uses.

A lane has two paths. Steps of few rows run natively, where quantised weights are multiplied with
activations in 8 bits; longer ones run in torch, which widens the weights to its own dtype first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.catalog.device import HardwareSpec
from engine.catalog.models import ModelSpec
from engine.catalog.precision import get_format
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.step_cost import StepCost, StepCostModel


@dataclass(frozen=True, slots=True)
class LaneFormats:
    """How a lane stores and multiplies: the catalogue's names of formats.

    ``activations``: what torch computes in. ``native_rows``: tokens of a step up to which it runs
    natively, 0 where none does.
    """

    weights: str
    kv: str
    activations: str
    native_rows: int = 0

    @property
    def native_activations(self) -> str:
        """What a native step multiplies in: weights that no unit multiplies as they are stored are
        levels, and these meet activations in 8 bits."""
        return self.activations if get_format(self.weights).arithmetic else "int8"


class LaneRoofline:
    """Prices steps of one lane at the roofline of the machine. A ``CostModel``.

    Raises:
        UnknownName, InvalidRequest: a format is wrong (names the field).
        UnsupportedModel: the model has a part that is not simulated (field "model").
    """

    def __init__(self, model: ModelSpec, hardware: HardwareSpec, formats: LaneFormats) -> None:
        self.formats = formats
        self.torch = StepCostModel(
            model, hardware, formats.weights, formats.kv, formats.activations
        )
        self.native = StepCostModel(
            model, hardware, formats.weights, formats.kv, formats.native_activations
        )

    @property
    def model(self) -> ModelSpec:
        return self.torch.model

    @property
    def hardware(self) -> HardwareSpec:
        return self.torch.hardware

    @property
    def step(self) -> DecoderStep:
        return self.torch.step

    def cost(self, shapes: Sequence[SequenceShape]) -> StepCost:
        """The cost of one step over a batch of at least one sequence."""
        return self.cost_of(self.step.measure(shapes))

    def cost_of(self, shape: StepShape) -> StepCost:
        """The cost of a step of that shape, on the path that it takes."""
        native = shape.tokens <= self.formats.native_rows
        return (self.native if native else self.torch).cost_of(shape)
