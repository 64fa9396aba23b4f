"""Which knobs a sweep turns, and over which values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import ClassVar

from engine.errors import InvalidRequest
from engine.refusals import refused
from engine.simulator.search.cell import FACTORS, Cell

KnobValue = str | int | float


class Turn(StrEnum):
    """What a knob's values change, which decides how its cells are priced together."""

    STRUCTURE = "the model's operators"
    DEVICE = "rates of the device and the engine"
    NUMBER = "a number in the formulas"


@dataclass(frozen=True, slots=True)
class Knob:
    """A field of ``Cell`` that a sweep can turn, and the type and unit of its values."""

    name: str
    turn: Turn
    type: type[str] | type[int] | type[float]
    unit: str
    meaning: str


KNOBS: Mapping[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("model", Turn.STRUCTURE, str, "", "a model of the catalogue"),
        Knob("hardware", Turn.DEVICE, str, "", "a device of the catalogue"),
        Knob("devices", Turn.STRUCTURE, int, "devices", "devices that share every matrix"),
        Knob("weights", Turn.STRUCTURE, str, "", "number format of the weights"),
        Knob("kv", Turn.STRUCTURE, str, "", "number format of the KV cache"),
        Knob("activations", Turn.STRUCTURE, str, "", "number format that products are computed in"),
        Knob("times", Turn.STRUCTURE, str, "", "ideal or typical"),
        Knob("engine", Turn.DEVICE, str, "", "serving engine, of typical times"),
        Knob("batch", Turn.NUMBER, int, "requests", "requests that arrive together"),
        Knob("prompt_tokens", Turn.NUMBER, int, "tokens", "prompt tokens of each request"),
        Knob("output_tokens", Turn.NUMBER, int, "tokens", "output tokens of each request"),
        Knob("context_tokens", Turn.NUMBER, int, "tokens", "cached before the prompt arrives"),
        Knob("usd_per_hour", Turn.NUMBER, float, "US$/h", "price of one device"),
        Knob("memory_utilization", Turn.NUMBER, float, "", "part of the memory that may be filled"),
        Knob("bandwidth_factor", Turn.NUMBER, float, "×", "memory bandwidth"),
        Knob("flops_factor", Turn.NUMBER, float, "×", "rates of arithmetic"),
        Knob("link_factor", Turn.NUMBER, float, "×", "bandwidth between devices"),
        Knob("launch_factor", Turn.NUMBER, float, "×", "time of launching kernels"),
        Knob("host_factor", Turn.NUMBER, float, "×", "time of the engine's host"),
    )
}


@dataclass(frozen=True, slots=True)
class Axis:
    """A knob and the values it takes, in this order."""

    knob: str
    values: tuple[KnobValue, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """All combinations of the axes' values; everything else is as in ``base``.

    Raises:
        InvalidRequest: a knob does not exist or comes twice, an axis is empty, a value is wrong,
            or there are too many cells (names the field: "axes.0.values.3").
    """

    base: Cell
    axes: tuple[Axis, ...] = field(default=())

    MAX_AXES: ClassVar[int] = 3
    MAX_CELLS: ClassVar[int] = 250_000
    MAX_STRUCTURES: ClassVar[int] = 1024

    def __post_init__(self) -> None:
        if len(self.axes) > self.MAX_AXES:
            raise refused("axes_at_most", field="axes", high=self.MAX_AXES)
        for place, axis in enumerate(self.axes):
            if axis.knob not in KNOBS:
                raise refused("choose_one", field=f"axes.{place}.knob", choices=", ".join(KNOBS))
            if axis.knob in {other.knob for other in self.axes[:place]}:
                raise refused("knob_twice", field=f"axes.{place}.knob")
            if not axis.values:
                raise refused("no_values", field=f"axes.{place}.values")
        if self.cells > self.MAX_CELLS:
            raise refused("cells_at_most", field="axes", high=f"{self.MAX_CELLS:,}")
        structures = math.prod(
            len(axis.values) for axis in self.axes if KNOBS[axis.knob].turn is Turn.STRUCTURE
        )
        if structures > self.MAX_STRUCTURES:
            raise refused("structures_at_most", field="axes", high=f"{self.MAX_STRUCTURES:,}")
        for place, axis in enumerate(self.axes):
            self._check_values(place, axis)

    def _check_values(self, place: int, axis: Axis) -> None:
        for index, value in enumerate(axis.values):
            try:
                self.cell({axis.knob: value})
            except InvalidRequest as error:
                # The same check as for the base, at its place among the values.
                named = f"axes.{place}.values.{index}" if error.field == axis.knob else error.field
                raise error.at(named) from None

    @property
    def shape(self) -> tuple[int, ...]:
        """Values of each axis: the shape of every array of metrics."""
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def cells(self) -> int:
        """Combinations of values."""
        return math.prod(self.shape)

    def cell(self, values: Mapping[str, KnobValue]) -> Cell:
        """The base with these knobs turned."""
        return replace(self.base, **values)

    def at(self, *places: int) -> Cell:
        """The cell at these places of the axes."""
        chosen = zip(self.axes, places, strict=True)
        return self.cell({axis.knob: axis.values[place] for axis, place in chosen})


def _check_knobs() -> None:
    names = {item.name for item in fields(Cell)}
    if names != set(KNOBS) or not set(FACTORS) <= names:
        raise AssertionError("every field of a cell is a knob")


_check_knobs()
