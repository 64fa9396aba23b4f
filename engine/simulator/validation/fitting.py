"""Fits efficiencies to measured rows: a robust least-squares fit that stays near the priors.

Offline: its result is stored. Every number keeps its prior, with a width in log space; rows pull
at it by the logarithm of predicted over measured, and count less the further off they are and
the more rows a source has of the same kind.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.simulator.efficiency import Values
from engine.simulator.validation.plans import Plan
from engine.simulator.validation.pricing import PlanPricer

Array = NDArray[np.float64]

WIDTHS: Mapping[str, float] = {
    "device.mbu": 0.08,
    "device.mfu": 0.15,
    "device.low_bit_mfu": 0.15,
    "device.half_ridge": 0.50,
    "device.attention_mbu": 0.25,
    "device.attention_mfu": 0.40,
    "device.attention_half": 0.50,
    "device.gap_us": 0.40,
    "engine.bandwidth": 0.07,
    "engine.hbm_bandwidth": 0.30,
    "engine.rate": 0.25,
    "engine.hbm_rate": 0.30,
    "engine.q8_bandwidth": 0.20,
    "engine.q4_bandwidth": 0.20,
    "engine.dequant_ops": 0.30,
    "engine.q_rate": 0.20,
    "engine.experts": 0.25,
    "engine.expert_rate": 0.30,
    "engine.attention_rate": 0.30,
    "engine.attention_bandwidth": 0.30,
    "engine.score_bytes": 0.60,
    "engine.move": 0.30,
    "engine.reduce": 0.30,
    "engine.link": 0.40,
    "engine.kernels": 0.30,
    "engine.launch_us": 0.50,
    "engine.step_us": 0.60,
    "engine.group_step_us": 0.60,
    "engine.sequence_us": 0.60,
    "engine.stage_us": 0.60,
    "engine.host_ms": 0.60,
    "link.latency_us": 0.40,
    "link.efficiency": 0.25,
}
"""Standard deviation of the logarithm of each number around its prior."""
_SCALE = 0.08
"""Residual (log) from which a row counts like an absolute, no longer a squared, error."""
_NOISE = 0.12
"""Residual (log) of a row that weighs as much as a width of a prior."""
_TIERS = {"A": 1.0, "B": 0.7, "C": 0.3}
_STEP = 0.02


@dataclass(frozen=True, slots=True)
class Fit:
    """The values found, which of them moved, and the rows they were found from."""

    values: Values
    fitted: tuple[str, ...]
    rows: int


def row_weights(plans: Sequence[Plan]) -> Array:
    """Weight of each row: by tier, and one over the root of the rows of its kind."""
    keys = [_cell(plan) for plan in plans]
    counts = Counter(keys)
    tiers = np.array([_TIERS.get(plan.case.measurement.tier, 0.7) for plan in plans])
    return tiers / np.sqrt(np.array([counts[key] for key in keys], dtype=np.float64))


def _cell(plan: Plan) -> tuple[str, ...]:
    row = plan.case.measurement
    return (row.source_id, plan.case.hardware.id, plan.case.engine, row.metric, row.batch_kind)


def fit(pricer: PlanPricer, prior: Values, rounds: int = 12) -> Fit:
    """Levenberg-Marquardt in log space with a Jacobian by differences."""
    plans = pricer.plans
    measured = np.log([plan.case.measurement.value for plan in plans])
    weights = row_weights(plans)
    names = [name for name in prior if _width(name) is not None and prior[name] > 0]
    influence = pricer.influence(prior, names)
    names = [name for name, rows in zip(names, influence, strict=True) if len(rows)]
    influence = [rows for rows in influence if len(rows)]
    widths = np.array([_width(name) or 1.0 for name in names])
    shift = np.zeros(len(names))
    damping = 1.0

    def values_at(point: Array) -> dict[str, float]:
        moved = {n: prior[n] * math.exp(s) for n, s in zip(names, point.tolist(), strict=True)}
        return {**prior, **_bounded(moved)}

    def residuals(values: Values) -> Array:
        return np.log(np.maximum(pricer.predict(values), 1e-12)) - measured

    def loss(residual: Array, point: Array) -> float:
        robust = 2 * _SCALE**2 * (np.sqrt(1 + (residual / _SCALE) ** 2) - 1)
        return float((weights * robust).sum() / _NOISE**2 + ((point / widths) ** 2).sum())

    current = residuals(values_at(shift))
    best = loss(current, shift)
    for _ in range(rounds):
        base = values_at(shift)
        jacobian = np.zeros((len(plans), len(names)))
        for column, (name, rows) in enumerate(zip(names, influence, strict=True)):
            moved = {**base, name: base[name] * math.exp(_STEP)}
            jacobian[rows, column] = (
                np.log(np.maximum(pricer.predict(moved, rows), 1e-12))
                - measured[rows]
                - current[rows]
            ) / _STEP
        robust = weights / np.sqrt(1 + (current / _SCALE) ** 2) / _NOISE**2
        normal = (jacobian * robust[:, None]).T @ jacobian + np.diag(1 / widths**2)
        gradient = (jacobian * robust[:, None]).T @ current + shift / widths**2
        improved = False
        for _attempt in range(6):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            trial = shift + np.clip(step, -0.5, 0.5)
            found = residuals(values_at(trial))
            value = loss(found, trial)
            if value < best:
                improved = best - value > 1e-3 * abs(best)
                shift, current, best = trial, found, value
                damping = max(damping / 3, 1e-3)
                break
            damping *= 4
        if not improved:
            break
    return Fit(values_at(shift), tuple(names), len(plans))


def _width(name: str) -> float | None:
    kind, _, rest = name.partition(".")
    return WIDTHS.get(f"{kind}.{rest.rpartition('.')[2]}")


def _bounded(values: Mapping[str, float]) -> dict[str, float]:
    """No device moves more bytes than its memory does."""
    limits = {"mbu": 0.96, "attention_mbu": 0.98}
    return {
        name: min(value, limits.get(name.rpartition(".")[2], math.inf))
        for name, value in values.items()
    }
