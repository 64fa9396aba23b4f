"""The roofline of this machine, as the page draws it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.catalog.device import HardwareSpec
from engine.catalog.this_machine import this_machine_if_readable
from engine.catalog.units import si_label, significant
from webapp.charts import NARROW, WIDE, Roof, RooflineChart, roofline_chart
from webapp.pages.engine_view import EngineView
from webapp.prediction import NUMBER_FORMATS

FALLBACK_DTYPE = "float32"


@dataclass(frozen=True, slots=True)
class RooflineView:
    """One roof in two sizes, with its numbers in words. No roof: no calibration for this dtype."""

    dtype: str
    wide: RooflineChart
    narrow: RooflineChart

    @property
    def bandwidth(self) -> str:
        return si_label(self._roof.bandwidth, "B/s")

    @property
    def peak(self) -> str:
        return si_label(self._roof.peak, "FLOP/s")

    @property
    def ridge(self) -> str:
        return significant(self._roof.ridge)

    @property
    def _roof(self) -> Roof:
        if self.wide.roof is None:
            raise ValueError("this machine has no roof for this dtype")
        return self.wide.roof


def choose_dtype(engine: EngineView, asked: str | None) -> str:
    """The dtype to show: the one asked for if the engine offers it, else what its
    default lane computes in."""
    if engine.facts is None:
        return FALLBACK_DTYPE
    offered = {lane.dtype for lane in engine.facts.lanes}
    return asked if asked in offered else engine.facts.default_dtype


def measured_roof(machine: HardwareSpec | None, dtype: str) -> Roof | None:
    """The roof that was measured here for ``dtype``, if it was."""
    if machine is None:
        return None
    peak = machine.dense_flops.get(NUMBER_FORMATS[dtype])
    return Roof(machine.bandwidth, peak) if peak else None


def roofline_view(engine: EngineView, dtype: str) -> RooflineView:
    """The roofline of the device that the engine runs on, in ``dtype``.

    A calibration of another device is not shown. While the engine starts, its device is not known
    yet, and the calibration is taken to be of it.
    """
    fits = engine.calibrated or engine.facts is None
    roof = measured_roof(this_machine_if_readable(), dtype) if fits else None
    return RooflineView(dtype, roofline_chart(roof, WIDE), roofline_chart(roof, NARROW))
