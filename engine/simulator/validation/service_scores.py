"""How far the serving simulator is from measured runs, metric by metric."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.simulator.efficiency import Values
from engine.simulator.validation.calibration import read_folds
from engine.simulator.validation.services import (
    Latencies,
    MeasuredService,
    predict,
    read_services,
)

MetricName = Literal["ttft", "itl", "e2e"]
Prediction = Literal["shipped", "unseen"]


@dataclass(frozen=True, slots=True)
class ServiceGoal:
    """The median error, as a share, that a metric should stay within over the runs."""

    metric: MetricName
    name: str
    error: float


SERVICE_GOALS = (
    ServiceGoal("ttft", "TTFT under load", 0.20),
    ServiceGoal("itl", "ITL under load", 0.10),
    ServiceGoal("e2e", "E2E under load", 0.10),
)


@dataclass(frozen=True, slots=True)
class ServiceScore:
    """A run, and what was predicted: by the program's efficiencies, and by those of the fold that
    never saw its device."""

    run: MeasuredService
    shipped: Latencies
    unseen: Latencies

    def error(self, metric: MetricName, prediction: Prediction = "unseen") -> float | None:
        """Predicted / measured - 1; None where it was not published."""
        measured = getattr(self.run.measured, metric)
        predicted = getattr(getattr(self, prediction), metric)
        return None if measured is None or predicted is None else predicted / measured - 1


@dataclass(frozen=True, slots=True)
class ServiceErrors:
    """Median, 90th percentile and largest |predicted / measured - 1| over ``runs`` runs."""

    runs: int
    median: float
    p90: float
    largest: float


@dataclass(frozen=True, slots=True)
class ServiceGoalLine:
    """A goal and what came out; judged on predictions that never saw the device."""

    goal: ServiceGoal
    shipped: ServiceErrors
    unseen: ServiceErrors

    @property
    def met(self) -> bool:
        return self.unseen.median <= self.goal.error


def unseen_values(hardware: str) -> Values:
    """The efficiencies of the fold that left a device out; of the last where none had it."""
    _, *folds = read_folds()
    return next((fold.values for fold in folds if hardware in fold.held_out), folds[-1].values)


def score_service(run: MeasuredService) -> ServiceScore:
    """Simulate a run twice."""
    return ServiceScore(run, predict(run), predict(run, unseen_values(run.hardware)))


def score_services(workers: int = 2) -> tuple[ServiceScore, ...]:
    """Simulate all stored runs, in ``workers`` processes: some ten seconds."""
    with ProcessPoolExecutor(workers) as pool:
        return tuple(pool.map(score_service, read_services()))


def service_errors(
    scores: Sequence[ServiceScore], metric: MetricName, prediction: Prediction = "unseen"
) -> ServiceErrors | None:
    """Errors of a metric over the runs that published it; None without any."""
    found = [abs(e) for e in (s.error(metric, prediction) for s in scores) if e is not None]
    if not found:
        return None
    p90 = float(np.quantile(found, 0.9))
    return ServiceErrors(len(found), statistics.median(found), p90, max(found))


def service_goal_lines(scores: Sequence[ServiceScore]) -> list[ServiceGoalLine]:
    """Every goal with its errors."""
    lines: list[ServiceGoalLine] = []
    for goal in SERVICE_GOALS:
        shipped = service_errors(scores, goal.metric, "shipped")
        unseen = service_errors(scores, goal.metric, "unseen")
        if shipped is not None and unseen is not None:
            lines.append(ServiceGoalLine(goal, shipped, unseen))
    return lines


def by_deployment(scores: Sequence[ServiceScore]) -> dict[str, list[ServiceScore]]:
    """The runs of each deployment: most runs are of three, so their median is mostly theirs."""
    groups: dict[str, list[ServiceScore]] = {}
    for score in scores:
        groups.setdefault(deployment_name(score.run), []).append(score)
    return groups


def deployment_name(run: MeasuredService) -> str:
    """Model, devices and engine in words."""
    devices = f"{run.layout.devices} x {run.hardware}"
    return f"{run.model} on {devices}, vLLM {run.version}"
