"""A predicted number with its unit, the expression it came from, and where that came from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.catalog.device import HardwareSpec
from engine.catalog.model_spec import ModelSpec
from engine.catalog.units import label

Value = float | bool | str | None
Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class Quantity:
    """``value`` is None where there is nothing to predict, and the formula then says why.

    Units: s, B, FLOP, FLOP/s, B/s, FLOP/B, tokens/s, tokens, blocks, slots, bool, bound.
    """

    value: Value
    unit: str
    formula: str
    source: str

    def __post_init__(self) -> None:
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise ValueError("a prediction must be a finite number")

    @property
    def label(self) -> str:
        """The value as a person reads it, with its unit: "48.0 GB / 44.7 GiB"."""
        if self.value is None:
            return "—"
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        if isinstance(self.value, str):
            return self.value
        return label(self.value, self.unit)

    def to_document(self) -> dict[str, Value]:
        return {
            "value": self.value,
            "unit": self.unit,
            "kind": "predicted",
            "formula": self.formula,
            "source": self.source,
            "label": self.label,
        }


@dataclass(frozen=True, slots=True)
class Sources:
    """Where numbers come from, by what they rest on."""

    structure: str
    hardware: str
    rates: str
    loop: str

    @classmethod
    def of(cls, model: ModelSpec, hardware: HardwareSpec) -> Sources:
        structure = f"own derivation from the structure of {model.id}: {model.source}"
        device = f"{hardware.id}: {'; '.join(hardware.sources)}"
        first = hardware.sources[0] if hardware.sources else hardware.kind
        rates = f"{structure}; rates of {hardware.id}: {first}"
        loop = f"events of the scheduling loop on a virtual clock; {rates}"
        return cls(structure, device, rates, loop)


def quantity(value: Value, unit: str, formula: str, source: str) -> Document:
    """A quantity as JSON values."""
    return {**Quantity(value, unit, formula, source).to_document()}
