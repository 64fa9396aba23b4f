"""Predictions of all usable rows, four ways, and their errors by any grouping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.simulator.intervals import pick
from engine.simulator.validation.calibration import (
    is_rate,
    quantiles,
    read_folds,
    unseen_predictions,
)
from engine.simulator.validation.cases import Unusable, make_case
from engine.simulator.validation.kinds import kind_of
from engine.simulator.validation.measurement import Measurement
from engine.simulator.validation.plans import Plan, make_plan
from engine.simulator.validation.pricing import PlanPricer

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Errors:
    """Of some rows: how many, median and 90th percentile of |predicted / measured - 1|, and the
    median of predicted / measured - 1."""

    rows: int
    median: float
    p90: float
    bias: float


@dataclass(frozen=True, slots=True)
class Scores:
    """All usable rows with their predictions.

    ``roofline`` is ideal, ``shipped`` uses the values of the program (fitted to all rows),
    ``unseen`` those of the fold that never saw the row's device. ``half`` is fitted on half of the
    devices, of which ``half_held_out`` marks the other rows. ``low`` and ``high`` bound the
    typical interval of each row's time, from the residuals of the other folds.
    """

    plans: tuple[Plan, ...]
    unusable: tuple[Unusable, ...]
    measured: Array
    roofline: Array
    shipped: Array
    unseen: Array
    half: Array
    half_held_out: Mask
    inside: Mask

    def errors(self, predicted: Array, mask: Mask | None = None) -> Errors | None:
        """The errors of the rows of a mask; None without any."""
        relative = predicted / self.measured - 1
        if mask is not None:
            relative = relative[mask]
        if not len(relative):
            return None
        absolute = np.abs(relative)
        return Errors(
            len(relative),
            float(np.median(absolute)),
            float(np.quantile(absolute, 0.9)),
            float(np.median(relative)),
        )

    def groups(self, key: Callable[[Plan], str]) -> Mapping[str, Mask]:
        """Masks of the rows by a key, sorted by it."""
        keys = np.array([key(plan) for plan in self.plans])
        return {str(name): keys == name for name in sorted(set(keys.tolist()))}

    def mask(self, test: Callable[[Plan], bool]) -> Mask:
        return np.array([test(plan) for plan in self.plans], dtype=np.bool_)

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many rows are not usable, by reason."""
        return dict(Counter(item.reason for item in self.unusable).most_common())


def make_plans(rows: Sequence[Measurement]) -> tuple[tuple[Plan, ...], tuple[Unusable, ...]]:
    """The rows that can be predicted, and the others with their reasons."""
    plans: list[Plan] = []
    unusable: list[Unusable] = []
    for row in rows:
        case = make_case(row)
        if isinstance(case, Unusable):
            unusable.append(case)
            continue
        plan = make_plan(case)
        if plan is None:
            unusable.append(Unusable(row, "no formula for this kind of run"))
        else:
            plans.append(plan)
    return tuple(plans), tuple(unusable)


def score(rows: Sequence[Measurement]) -> Scores:
    """Predict every usable row with the stored values."""
    plans, unusable = make_plans(rows)
    pricer = PlanPricer(plans)
    half, *folds = read_folds()
    measured = np.array([plan.case.measurement.value for plan in plans])
    unseen = unseen_predictions(pricer, folds)
    ratio = np.log(measured / unseen)
    residuals = np.where([is_rate(plan) for plan in plans], -ratio, ratio)
    devices = [plan.case.hardware.id for plan in plans]
    return Scores(
        plans,
        unusable,
        measured,
        pricer.roofline(),
        pricer.predict(),
        unseen,
        pricer.predict(half.values),
        np.array([device in half.held_out for device in devices], dtype=np.bool_),
        _inside(plans, residuals, [fold.held_out for fold in folds]),
    )


def _inside(plans: Sequence[Plan], residuals: Array, folds: Sequence[frozenset[str]]) -> Mask:
    """Rows within p10 and p90 of the residuals of the other folds' devices."""
    found = np.zeros(len(plans), dtype=np.bool_)
    for fold in folds:
        here = np.array([plan.case.hardware.id in fold for plan in plans], dtype=np.bool_)
        others = [plan for plan, skip in zip(plans, here.tolist(), strict=True) if not skip]
        table = quantiles(others, residuals[~here])
        for index in np.flatnonzero(here).tolist():
            plan = plans[index]
            low, high = pick(table, kind_of(plan.case.measurement), plan.case.hardware)
            found[index] = np.log(low) <= residuals[index] <= np.log(high)
    return found
