"""Cells of one model in one set of formats: knobs as arrays, steps priced for all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.simulator.layout import Layout
from engine.simulator.search.axes import KNOBS, Axis, Turn
from engine.simulator.search.cell import Cell
from engine.simulator.search.ideal import ideal_steps
from engine.simulator.search.rates import Factors, device_columns
from engine.simulator.search.uniform import Floats, Ints, UniformSteps
from engine.simulator.step_cost import StepCostModel
from engine.simulator.step_price import price
from engine.simulator.typical import step_terms


class Block:
    """Cells of one model in one set of formats: knobs as arrays that broadcast together."""

    def __init__(self, base: Cell, axes: Sequence[Axis]) -> None:
        self.base = base
        self.shape = tuple(len(axis.values) for axis in axes)
        self._axes = axes
        turned = [axis for axis in axes if KNOBS[axis.knob].turn is Turn.DEVICE]
        knobs = [axis.knob for axis in turned]
        cells = [
            replace(base, **dict(zip(knobs, values, strict=True)))
            for values in itertools.product(*(axis.values for axis in turned))
        ]
        # Sizes of the axes that turn devices; 1 for all others.
        shape = tuple(len(axis.values) if axis in turned else 1 for axis in axes)
        factors = Factors(*(self.number(f"{name}_factor") for name in Factors.NAMES))
        self.devices = device_columns(cells, shape, factors)
        own = self.number("usd_per_hour")
        self.hourly_price = base.devices * np.where(np.isnan(own), self.devices.price, own)
        names = (base.weights, base.kv, base.activations)
        model = StepCostModel(
            base.model_spec, cells[0].hardware_spec, *names, Layout(tensor=base.devices)
        )
        self.step = model.step
        self._terms = step_terms(self.step)
        rates = self.devices.rates
        self.first_token = np.zeros(()) if rates is None else rates.first_token

    def number(self, knob: str) -> Floats:
        """The values of a knob along its axis, or the base's; NaN for None."""
        for place, axis in enumerate(self._axes):
            if axis.knob == knob:
                shape = [1] * len(self._axes)
                shape[place] = len(axis.values)
                return np.array(axis.values, dtype=np.float64).reshape(shape)
        value = getattr(self.base, knob)
        return np.array(math.nan if value is None else value, dtype=np.float64)

    def integer(self, knob: str) -> Ints:
        """The values of a knob that counts something."""
        return self.number(knob).astype(np.int64)

    def time(self, steps: UniformSteps) -> Floats:
        """Seconds of the steps."""
        rates = self.devices.rates
        if rates is None:
            return ideal_steps(self.step, self.devices.peaks, steps).time
        work = steps.work(self.step.measures)
        return price(self._terms.of_many(steps.tokens, steps.sampled, work), rates).time
