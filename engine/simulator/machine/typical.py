"""Typical times of the real engine on this machine, from what was measured of its lane.

    calibration = load_calibration()
    lane = matching_lane(calibration, architecture, formats)     None before it was measured
    model = LaneTypical(LaneRoofline(spec, hardware, formats), fitted(lane))
    cost = model.cost([SequenceShape(512, 1, True)])
    cost.time, cost.p10, cost.p90, cost.parts, cost.ideal

The parts are those of ``engine.simulator.typical``. Sampling is that of the likeliest token: a
step's shape does not say how its requests are sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from engine.catalog.device import HardwareSpec
from engine.catalog.lane_calibration import LaneCalibration
from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import Calibration, calibrated_hardware
from engine.scheduling.plan import SequenceShape
from engine.simulator.decoder_step import DecoderStep, StepShape
from engine.simulator.machine.curves import (
    LaneCurves,
    fit_lane,
    launch_seconds,
    operator_seconds,
)
from engine.simulator.machine.ideal import LaneFormats, LaneRoofline
from engine.simulator.step_price import Parts
from engine.simulator.step_terms import StepTerms
from engine.simulator.typical import TypicalCost

_DENSE_FIELDS = frozenset(signature(ModelSpec.dense).parameters)
NUMBER_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""The engine's names of what it computes in, and the catalogue's."""


@dataclass(frozen=True, slots=True)
class LaneCost(TypicalCost):
    """A typical cost with the seconds that eight of ten runs lay between."""

    p10: float
    p90: float


class LaneTypical:
    """Prices steps of one lane as they take here. A ``CostModel``.

    ``curves`` may be of another model on this machine: they are of a weight, a FLOP or a byte.
    """

    def __init__(self, ideal: LaneRoofline, curves: LaneCurves) -> None:
        self.ideal = ideal
        self.curves = curves
        self._terms = StepTerms(ideal.step)

    @property
    def model(self) -> ModelSpec:
        return self.ideal.model

    @property
    def hardware(self) -> HardwareSpec:
        return self.ideal.hardware

    @property
    def step(self) -> DecoderStep:
        return self.ideal.step

    def cost(self, shapes: Sequence[SequenceShape]) -> LaneCost:
        """The price of one step over a batch of at least one sequence."""
        return self.cost_of(self.step.measure(shapes))

    def cost_of(self, shape: StepShape) -> LaneCost:
        """The price of a step of that shape."""
        terms, curves = self._terms.of(shape), self.curves
        path = curves.path(shape.tokens)
        parts = Parts(
            operators=operator_seconds(terms, path),
            launch=launch_seconds(terms, path),
            scheduler=curves.scheduler.at(terms.sequences),
            sampling=curves.sampling.at(terms.sequences) if terms.sequences else 0.0,
            communication=0.0,
        )
        time = parts.time
        return LaneCost(time, parts, shape, self, time * path.p10, time * path.p90)


def dense_spec(architecture: Mapping[str, Any], model_id: str = "") -> ModelSpec:
    """A model as the engine describes it, in the catalogue's words.

    Raises:
        TypeError, ValueError: something is missing, or no model has such a part.
    """
    known: dict[str, Any] = {name: architecture[name] for name in _DENSE_FIELDS & {*architecture}}
    known.setdefault("id", model_id)
    return ModelSpec.dense(**known)


def formats_of(lane: LaneCalibration) -> LaneFormats:
    """How the measured lane stores and multiplies."""
    return LaneFormats(
        lane.weight_format, lane.kv_format, NUMBER_FORMATS[lane.dtype], lane.native_rows
    )


def matching_lane(
    calibration: Calibration, architecture: Mapping[str, object], formats: LaneFormats
) -> LaneCalibration | None:
    """What was measured of a lane of these formats of this very model; None if nothing was.

    Lanes that differ in the window of their cache or in prefix caching run the same code.
    """
    for lane in calibration.lanes:
        if dict(lane.model) == dict(architecture) and formats_of(lane) == formats:
            return lane
    return None


def fitted(calibration: Calibration, lane: LaneCalibration) -> LaneCurves:
    """The curves of a measured lane.

    Raises:
        EngineError, TypeError, ValueError: the lane is of no model that is simulated, or a path
            of it was not measured.
    """
    roofline = LaneRoofline(
        dense_spec(lane.model), calibrated_hardware(calibration), formats_of(lane)
    )
    terms = StepTerms(roofline.step)
    return fit_lane(lane, lambda shapes: terms.of(roofline.step.measure(shapes)))
