"""A deployment on this machine, at the speed that was measured of the engine's own lanes here.

    model = lane_model(spec, hardware, "bf16", "bf16", None)     None before a lane was measured
    model.cost(shapes).time

Curves are of a weight, a FLOP or a byte, so that those of one model price another one.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from engine.catalog.device import HardwareSpec
from engine.catalog.lane_calibration import LaneCalibration
from engine.catalog.models import ModelSpec
from engine.catalog.this_machine import (
    THIS_MACHINE_ID,
    Calibration,
    calibration_path,
    load_calibration,
)
from engine.simulator.decoder_step import StepShape
from engine.simulator.machine.curves import LaneCurves
from engine.simulator.machine.ideal import LaneFormats, LaneRoofline
from engine.simulator.machine.typical import NUMBER_FORMATS, LaneTypical, fitted
from engine.simulator.typical import TypicalCost, TypicalCostModel


class LaneCostModel(TypicalCostModel):
    """Typical times of this project's own engine on this machine, one device.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``TypicalCostModel``.
    """

    def __init__(
        self, model: ModelSpec, hardware: HardwareSpec, formats: LaneFormats, curves: LaneCurves
    ) -> None:
        super().__init__(model, hardware, formats.weights, formats.kv, formats.activations)
        self._lane = LaneTypical(LaneRoofline(model, hardware, formats), curves)

    @property
    def first_token_overhead(self) -> float:
        """Nothing: the engine here tells its first token itself, without a connection between."""
        return 0.0

    def cost_of(self, shape: StepShape) -> TypicalCost:
        """The price of a step of that shape."""
        return self._lane.cost_of(shape)


def lane_model(
    model: ModelSpec, hardware: HardwareSpec, weights: str, kv: str, activations: str | None
) -> LaneCostModel | None:
    """What prices steps in these formats by a measured lane; None where none was measured, or the
    device is another one.

    Raises:
        FileFormatError: the calibration cannot be read.
        UnknownName, InvalidRequest, UnsupportedModel: as for ``LaneCostModel``.
    """
    if hardware.id != THIS_MACHINE_ID or hardware.kind != "measured":
        return None
    calibration = load_calibration()
    if calibration is None:
        return None
    lane = _lane_of(calibration, weights, kv, activations)
    if lane is None:
        return None
    formats = LaneFormats(weights, kv, NUMBER_FORMATS[lane.dtype], lane.native_rows)
    path = calibration_path()
    curves = _curves(path, path.stat().st_mtime_ns, lane.lane)
    return LaneCostModel(model, hardware, formats, curves)


def _lane_of(
    calibration: Calibration, weights: str, kv: str, activations: str | None
) -> LaneCalibration | None:
    """A lane is of the format that it stores ("mixed-5"), or that it is named by: a lane
    "int4-g32-rtn" has weights in "int4-g32"."""
    for lane in calibration.lanes:
        named = lane.weight_format == weights or lane.lane.startswith(f"{weights}-")
        computes = activations in (None, NUMBER_FORMATS[lane.dtype])
        if named and lane.kv_format == kv and computes:
            return lane
    return None


@lru_cache(maxsize=16)
def _curves(path: Path, written: int, name: str) -> LaneCurves:
    """The curves of a lane of the calibration that was ``written`` then; to fit them takes tens of
    milliseconds."""
    calibration = load_calibration()
    if calibration is None:
        raise AssertionError(f"{path} of {written} was there a moment ago")
    return fitted(calibration, next(lane for lane in calibration.lanes if lane.lane == name))
