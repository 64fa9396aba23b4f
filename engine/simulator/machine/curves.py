"""From measured steps of a lane to curves of its operators, by linear least squares.

A step takes its overheads, its products with weights, its attention core, its head, sampling and
the scheduling loop. Overheads, head and sampling were measured apart. What is left of a step is
taken as ``weights · s(rows) + a · FLOPs + b · bytes`` of the attention core, where ``s`` is
straight between a few knots. No part may be negative.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from engine.catalog.lane_calibration import LaneCalibration, MeasuredStep, Overheads
from engine.scheduling.plan import SequenceShape
from engine.simulator.step_price import Terms

Array = NDArray[np.float64]
PricedTerms = Callable[[Sequence[SequenceShape]], Terms[float]]
"""The terms of a step of these shapes."""

_LOW, _HIGH = 0.1, 0.9
# Rows at which the time of a product may bend. Native steps pass from reading weights to
# multiplying within a few rows; torch's kernels have more rows than that on a CPU, and on a GPU
# pass from one to the other in hundreds.
_KNOTS = {"native": (1, 2, 4, 8, 16, 48, 96, 256, 1_024), "torch": (1, 16, 128, 1_024)}


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over a number of rows: straight between the knots, which rise, and on in the same
    way beyond the first and the last, but never below 0."""

    knots: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, rows: float) -> float:
        left, share = _between(self.knots, rows)
        values = self.values
        right = min(left + 1, len(values) - 1)
        return max(values[left] + share * (values[right] - values[left]), 0.0)


def _between(knots: Sequence[float], rows: float) -> tuple[int, float]:
    """The knot on the left and how far it is from there to the next, below 0 or above 1 outside."""
    if len(knots) == 1:
        return 0, 0.0
    left = min(max(bisect_right(knots, rows) - 1, 0), len(knots) - 2)
    return left, (rows - knots[left]) / (knots[left + 1] - knots[left])


@dataclass(frozen=True, slots=True)
class PathCurves:
    """What steps on one path take.

    ``products`` and ``head``: seconds for each weight, by rows. ``flop_s`` and ``byte_s``: seconds
    for each FLOP and each byte of the attention core. ``p10`` and ``p90`` bound, as factors, eight
    of ten runs of the steps that the rest was not made of.
    """

    launch: Overheads
    products: Curve
    head: Curve
    flop_s: float
    byte_s: float
    p10: float
    p90: float


@dataclass(frozen=True, slots=True)
class LaneCurves:
    """A lane's paths, and what all its steps take beside their operators, in seconds: ``sampling``
    and ``scheduler`` by sampled positions."""

    native_rows: int
    native: PathCurves | None
    torch: PathCurves
    sampling: Curve
    scheduler: Curve

    def path(self, rows: float) -> PathCurves:
        """The path that a step of that many tokens takes."""
        native = self.native
        return native if native is not None and rows <= self.native_rows else self.torch


def fit_lane(lane: LaneCalibration, terms_of: PricedTerms) -> LaneCurves:
    """The curves of a measured lane; ``terms_of`` counts for the model that was measured.

    Raises:
        ValueError: a path of the lane was not measured.
    """
    fitted = [step for step in lane.steps if not step.checks]
    sampling = _mean_curve([(step.sequences, step.stages.get("sample", 0.0)) for step in fitted])

    def path(name: str, steps: Sequence[MeasuredStep]) -> PathCurves:
        return _fit_path(_Path(name, steps, lane.launch[name], terms_of, sampling))

    native = [step for step in lane.steps if step.rows <= lane.native_rows]
    torch = [step for step in lane.steps if step.rows > lane.native_rows]
    natively = path("native", native) if lane.native_rows else None
    return LaneCurves(
        native_rows=lane.native_rows,
        native=natively,
        # Where every step is native, nobody asks for the other path.
        torch=natively if natively and "torch" not in lane.launch else path("torch", torch),
        sampling=sampling,
        scheduler=_mean_curve(tuple(lane.between_steps.items())),
    )


def shapes_of(step: MeasuredStep) -> list[SequenceShape]:
    """The sequences of a measured step."""
    return [SequenceShape(step.prefix_tokens, step.new_tokens, True)] * step.sequences


def operator_seconds(terms: Terms[float], path: PathCurves) -> float:
    """Products with weights, attention core and head of a step."""
    seconds = terms.core_flops * path.flop_s + terms.core_bytes * path.byte_s
    if terms.gemm_rows:
        seconds += terms.gemm_flops / (2 * terms.gemm_rows) * path.products.at(terms.gemm_rows)
    if terms.head_rows:
        seconds += terms.head_flops / (2 * terms.head_rows) * path.head.at(terms.head_rows)
    return seconds


def launch_seconds(terms: Terms[float], path: PathCurves) -> float:
    """Overheads of a step and its layers."""
    return path.launch.step_s + terms.layers * path.launch.layer_s


@dataclass(frozen=True, slots=True)
class _Path:
    """What the curves of a path are made of."""

    name: str
    steps: Sequence[MeasuredStep]
    launch: Overheads
    terms_of: PricedTerms
    sampling: Curve


def _fit_path(path: _Path) -> PathCurves:
    fitted = [step for step in path.steps if not step.checks]
    if not fitted:
        raise ValueError(f"no {path.name} steps were measured")
    terms = [path.terms_of(shapes_of(step)) for step in fitted]
    head = _mean_curve(
        [
            (t.head_rows, step.stages.get("logits", 0.0) * 2 * t.head_rows / t.head_flops)
            for step, t in zip(fitted, terms, strict=True)
        ]
    )
    totals = np.array([statistics.median(step.seconds) for step in fitted])
    left = np.array([_left(step, path, t) for step, t in zip(fitted, terms, strict=True)])
    knots = _knots(path.name, [step.rows for step in fitted])
    columns = [_columns(t, knots) for t in terms]
    # Each step counts by its relative error.
    found = _non_negative(np.array(columns) / totals[:, None], left / totals)
    curves = PathCurves(
        launch=path.launch,
        products=Curve(knots, tuple(found[: len(knots)].tolist())),
        head=head,
        flop_s=float(found[-2]),
        byte_s=float(found[-1]),
        p10=1.0,
        p90=1.0,
    )
    return _with_interval(curves, path)


def _left(step: MeasuredStep, path: _Path, terms: Terms[float]) -> float:
    """Seconds of products and attention core: what no other part of the step took."""
    apart = step.stages.get("logits", 0.0) + step.stages.get("sample", 0.0)
    launch = path.launch.step_s + terms.layers * path.launch.layer_s
    return statistics.median(step.seconds) - apart - launch


def _columns(terms: Terms[float], knots: Sequence[float]) -> list[float]:
    """What the unknowns are multiplied by: the weights at the knots around the step's rows, FLOPs
    and bytes."""
    weights = terms.gemm_flops / (2 * terms.gemm_rows)
    at_knots = [0.0] * len(knots)
    left, share = _between(knots, terms.gemm_rows)
    at_knots[left] = weights * (1 - share)
    if share:
        at_knots[left + 1] = weights * share
    return [*at_knots, terms.core_flops, terms.core_bytes]


def _knots(path: str, rows: Sequence[int]) -> tuple[float, ...]:
    """The knots that measured steps can tell apart: no stretch between two without a step."""
    inside = [float(knot) for knot in _KNOTS[path] if min(rows) <= knot <= max(rows)]
    kept = [
        knot
        for before, knot in zip([0.0, *inside], inside, strict=False)
        if any(before < count <= knot for count in rows)
    ]
    return tuple(kept) or (float(min(rows)),)


def _with_interval(curves: PathCurves, path: _Path) -> PathCurves:
    judged = [step for step in path.steps if step.checks] or path.steps
    ratios: list[float] = []
    for step in judged:
        terms = path.terms_of(shapes_of(step))
        expected = operator_seconds(terms, curves) + launch_seconds(terms, curves)
        expected += path.sampling.at(terms.sequences)
        ratios += [seconds / expected for seconds in step.seconds]
    low, high = np.quantile(ratios, [_LOW, _HIGH])
    return replace(curves, p10=float(low), p90=float(high))


def _mean_curve(points: Sequence[tuple[float, float]]) -> Curve:
    """A curve through the mean value at each number of rows."""
    by_rows: dict[float, list[float]] = {}
    for rows, value in points:
        by_rows.setdefault(float(rows), []).append(value)
    knots = sorted(by_rows)
    return Curve(tuple(knots), tuple(statistics.fmean(by_rows[knot]) for knot in knots))


def _non_negative(matrix: Array, wanted: Array) -> Array:
    """Least squares without negative unknowns: the most negative one is left out, one by one."""
    # Unknowns are seconds for a weight, a FLOP or a byte: of very different sizes.
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1.0
    scaled = matrix / scale
    kept = list(range(matrix.shape[1]))
    found = np.zeros(matrix.shape[1])
    while kept:
        solution = cast("Array", np.linalg.lstsq(scaled[:, kept], wanted, rcond=None)[0])
        worst = int(np.argmin(solution))
        if solution[worst] >= 0:
            found[kept] = solution
            break
        del kept[worst]
    return found / scale
