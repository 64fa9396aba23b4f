"""Fits the efficiencies and writes what ships: offline, some minutes.

Three sorts of fits: to all usable rows (what the program uses), to the rows of half of the
devices (scored on the other half), and five that each leave a fifth of the devices out (scored
on these). So every row is also predicted by values that never saw its device.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from engine.simulator.efficiency import Values, prior_table
from engine.simulator.intervals import segment
from engine.simulator.validation.fitting import Fit, fit, row_weights
from engine.simulator.validation.kinds import kind_of
from engine.simulator.validation.plans import Plan
from engine.simulator.validation.pricing import PlanPricer
from engine.simulator.validation.splitting import dealt, split_devices

Array = NDArray[np.float64]
FOLDS = 5
FOLDER = Path(__file__).parents[2] / "catalog" / "data" / "efficiency"
_LEVEL = 0.91
_FEWEST_ROWS = 25
"""Rows from which a group has quantiles of its own."""
_FEWEST_DEVICES = 5


@dataclass(frozen=True, slots=True)
class Fold:
    """Values fitted without the rows of some devices."""

    name: str
    held_out: frozenset[str]
    values: Values


def calibrate(plans: Sequence[Plan], today: date) -> None:
    """Fit everything and write calibrated.toml, folds.toml and intervals.toml."""
    prior = prior_table().values
    whole = fit(PlanPricer(plans), prior)
    (FOLDER / "calibrated.toml").write_text(_calibrated_text(whole, today), encoding="utf-8")
    groups = [("half", split_devices(plans).held_out)]
    groups += [(f"fold {n}", hand) for n, hand in enumerate(dealt(plans, FOLDS), 1)]
    folds: list[Fold] = []
    for name, held_out in groups:
        kept = [plan for plan in plans if plan.case.hardware.id not in held_out]
        folds.append(Fold(name, held_out, fit(PlanPricer(kept), prior).values))
        print(f"{name}: {len(kept):,} rows fitted, {len(plans) - len(kept):,} left out", flush=True)
    (FOLDER / "folds.toml").write_text(_folds_text(folds), encoding="utf-8")
    read_folds.cache_clear()
    residuals = unseen_residuals(PlanPricer(plans), folds[1:])
    (FOLDER / "intervals.toml").write_text(_intervals_text(plans, residuals), encoding="utf-8")


@cache
def read_folds() -> tuple[Fold, ...]:
    """The half and the five folds, as they were fitted."""
    prior = prior_table().values
    document = tomllib.loads((FOLDER / "folds.toml").read_text(encoding="utf-8"))
    found: list[Fold] = []
    for table in cast("list[dict[str, object]]", document["folds"]):
        values = cast("dict[str, float]", table["values"])
        held_out = frozenset(cast("list[str]", table["held_out"]))
        found.append(Fold(str(table["name"]), held_out, {**prior, **values}))
    return tuple(found)


def unseen_predictions(pricer: PlanPricer, folds: Sequence[Fold]) -> Array:
    """Each plan's metric by the fold that never saw its device; devices new to all by the last."""
    owner = {device: n for n, fold in enumerate(folds) for device in fold.held_out}
    place = np.array([owner.get(plan.case.hardware.id, -1) for plan in pricer.plans])
    found = np.empty(len(pricer.plans))
    for number, fold in enumerate(folds):
        rows = np.flatnonzero(place == number)
        if len(rows):
            found[rows] = pricer.predict(fold.values, rows)
    strangers = np.flatnonzero(place < 0)
    if len(strangers):
        found[strangers] = pricer.predict(folds[-1].values, strangers)
    return found


def unseen_residuals(pricer: PlanPricer, folds: Sequence[Fold]) -> Array:
    """log(measured / predicted) of each plan's time, by values that never saw its device."""
    measured = np.array([plan.case.measurement.value for plan in pricer.plans])
    ratio = np.log(measured / unseen_predictions(pricer, folds))
    return np.where([is_rate(plan) for plan in pricer.plans], -ratio, ratio)


def is_rate(plan: Plan) -> bool:
    """The number is tokens/s, not a time."""
    return "tok_s" in plan.case.measurement.metric


def quantiles(plans: Sequence[Plan], residuals: Array) -> dict[str, tuple[float, float]]:
    """Factors on a typical time between which eight of ten measured ones lie.

    Of all rows, and by kind, and by kind and segment where these have enough rows and devices.
    Rows of one source, device, engine and kind stick together: each weighs one over the root of
    their number. Quantiles of few devices are too narrow for a new one: at 10 and 90% they held
    73% of the rows of devices that they were not taken from, at 9 and 91% 76%.
    """
    groups: dict[str, list[int]] = {}
    for index, plan in enumerate(plans):
        kind = kind_of(plan.case.measurement)
        for key in ("all", str(kind), f"{kind} / {segment(plan.case.hardware)}"):
            groups.setdefault(key, []).append(index)
    weights = row_weights(plans)
    found: dict[str, tuple[float, float]] = {}
    for key, rows in sorted(groups.items()):
        devices = {plans[row].case.hardware.id for row in rows}
        if key == "all" or (len(rows) >= _FEWEST_ROWS and len(devices) >= _FEWEST_DEVICES):
            low, high = _weighted_quantiles(residuals[rows], weights[rows])
            found[key] = float(np.exp(min(low, -0.01))), float(np.exp(max(high, 0.01)))
    return found


def _weighted_quantiles(values: Array, weights: Array) -> tuple[float, float]:
    """The lower and upper quantile where values weigh differently."""
    order = np.argsort(values)
    ranks = (np.cumsum(weights[order]) - 0.5 * weights[order]) / weights.sum()
    low, high = np.interp((1 - _LEVEL, _LEVEL), ranks, values[order])
    return float(low), float(high)


def _moved(values: Values) -> Mapping[str, str]:
    prior = prior_table().values
    return {
        name: f"{value:.4g}"
        for name, value in sorted(values.items())
        if prior[name] and abs(value / prior[name] - 1) > 1e-3
    }


def _table(values: Mapping[str, str]) -> list[str]:
    return [f'"{name}" = {value}' for name, value in values.items()]


def _calibrated_text(result: Fit, today: date) -> str:
    lines = [
        "# What measured rows made of the published numbers: written by",
        "#     python -m engine.simulator.validation calibrate",
        f'date = "{today.isoformat()}"',
        f"rows = {result.rows}",
        "",
        "[values]",
        *_table(_moved(result.values)),
    ]
    return "\n".join(lines) + "\n"


def _folds_text(folds: Sequence[Fold]) -> str:
    lines = ["# Calibrations without some devices, only to score; written with calibrated.toml"]
    for item in folds:
        devices = ", ".join(f'"{name}"' for name in sorted(item.held_out))
        lines += [
            "",
            "[[folds]]",
            f'name = "{item.name}"',
            f"held_out = [{devices}]",
            "[folds.values]",
            *_table(_moved(item.values)),
        ]
    return "\n".join(lines) + "\n"


def _intervals_text(plans: Sequence[Plan], residuals: Array) -> str:
    lines = [
        "# Measured over typical time, 10th and 90th percentile by kind, and kind and segment:",
        "# of predictions that never saw the device; written with calibrated.toml",
        "",
        "[intervals]",
    ]
    found = quantiles(plans, residuals)
    lines += [f'"{key}" = [{low:.4f}, {high:.4f}]' for key, (low, high) in found.items()]
    return "\n".join(lines) + "\n"
