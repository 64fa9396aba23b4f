"""Prices all steps of all plans at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.simulator.efficiency import Setting, Values, peaks_of, resolve
from engine.simulator.step_price import Peaks, Rates, Terms, price, price_ideal
from engine.simulator.validation.plans import Plan

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class PlanPricer:
    """The plans' terms as arrays, made once; ``predict`` prices them with any values."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.plans: tuple[Plan, ...] = tuple(plans)
        self._terms = np.array([terms for plan in plans for terms in plan.terms], dtype=np.float64)
        self._lengths = np.array([len(plan.terms) for plan in plans], dtype=np.int64)
        self._starts: Indices = np.cumsum(self._lengths) - self._lengths
        self._settings, self._owner = _distinct([plan.setting for plan in plans])

    def predict(self, values: Values | None = None, rows: Indices | None = None) -> Array:
        """The metric of each plan, or of those at ``rows``."""
        if rows is None:
            rows = np.arange(len(self.plans))
        numbers, inverse = np.unique(self._owner[rows], return_inverse=True)
        used: list[int] = numbers.tolist()
        place: list[int] = inverse.tolist()
        rates = [resolve(self._settings[number], values) for number in used]
        lengths: Indices = self._lengths[rows]
        ends: Indices = np.cumsum(lengths)
        firsts: Indices = self._starts[rows] - (ends - lengths)
        steps: Indices = np.repeat(firsts, lengths) + np.arange(int(ends[-1]))
        table = np.array(rates, dtype=np.float64)[np.repeat(place, lengths)]
        times = price(Terms(*self._terms[steps].T), Rates(*table.T)).time.tolist()
        return self._combined(rows, ends, times, [rates[index].first_token for index in place])

    def roofline(self) -> Array:
        """The metric of each plan if all steps ran at the roofline."""
        peaks = np.array([peaks_of(item) for item in self._settings], dtype=np.float64)
        table = peaks[np.repeat(self._owner, self._lengths)]
        times = price_ideal(Terms(*self._terms.T), Peaks(*table.T)).tolist()
        rows = np.arange(len(self.plans))
        return self._combined(rows, np.cumsum(self._lengths), times, [0.0] * len(rows))

    def _combined(
        self, rows: Indices, ends: Indices, times: list[float], first_tokens: list[float]
    ) -> Array:
        found = np.empty(len(rows))
        first = 0
        places: list[int] = rows.tolist()
        for index, (row, end) in enumerate(zip(places, ends.tolist(), strict=True)):
            plan = self.plans[row]
            found[index] = plan.combine(times[first:end], first_tokens[index])
            first = end
        return found

    def influence(self, values: Values, names: Sequence[str]) -> list[Indices]:
        """For each number, the rows whose rates change with it."""
        base = np.array([resolve(item, values) for item in self._settings], dtype=np.float64)
        found: list[Indices] = []
        for name in names:
            moved = {**values, name: values[name] * 1.5}
            now = np.array([resolve(item, moved) for item in self._settings], dtype=np.float64)
            settings = np.flatnonzero((now != base).any(axis=1))
            found.append(np.flatnonzero(np.isin(self._owner, settings)))
        return found


def _distinct(settings: Sequence[Setting]) -> tuple[list[Setting], Indices]:
    """Settings without repetition, and the place of each one's."""
    places: dict[tuple[object, ...], int] = {}
    found: list[Setting] = []
    owner: list[int] = []
    for setting in settings:
        hardware = setting.hardware
        rates = tuple(sorted(hardware.dense_flops.items()))
        key = (hardware.id, rates, setting.formats, setting.engine, setting.layout, setting.flash)
        if key not in places:
            places[key] = len(found)
            found.append(setting)
        owner.append(places[key])
    return found, np.array(owner, dtype=np.int64)
