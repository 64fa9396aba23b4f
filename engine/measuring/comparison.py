"""Measured points beside their predictions, on the roofline, and what explains the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.catalog.models import all_models
from engine.measuring.point import Point
from engine.simulator.decoder_step import StepShape
from engine.simulator.diagnosis.diagnose import MAX_OBSERVATIONS, Diagnosis, Phase, diagnose
from engine.simulator.diagnosis.observation import Observation
from engine.simulator.roofline import RooflineCurve
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import Metrics, cost_model, estimate
from engine.simulator.step_cost import StepCostModel
from engine.simulator.step_shape import scaled_shape

_LEAST_GOOD = 3
"""Answers that a point needs to be explained."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A step of so many sequences on the roofline: FLOP/byte, and FLOP/s of one device.

    ``measured`` is the rate at which the step's arithmetic was done; ``bandwidth`` B/s of one
    device and ``mbu``, ``mfu`` the shares of its limits that this makes.
    """

    phase: str
    sequences: int
    intensity: float
    measured: float
    typical: float
    bandwidth: float
    mbu: float
    mfu: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A point with its predictions. ``found`` judges this point alone."""

    point: Point
    cell: Cell
    ideal: Metrics
    typical: Metrics
    found: Diagnosis
    dots: tuple[Dot, ...]

    @property
    def farthest(self) -> float:
        """Measured over typical time, of the phase in which that is more."""
        phases = (self.found.start, self.found.stream)
        return max(phase.measured / phase.typical for phase in phases if phase.measured is not None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All points that could be compared, and the diagnosis of all of them together; the point
    farthest above its typical times is the one that it explains."""

    base: Cell
    curve: RooflineCurve
    points: tuple[Compared, ...]
    diagnosis: Diagnosis | None
    explained: Compared | None


def catalogue_id(model: str) -> str | None:
    """The catalogue's id of a model that a server names: the name, or what stands behind its last
    slash, case apart. Nothing is guessed: None where the catalogue has no such id."""
    wanted = model.rpartition("/")[2].lower()
    return next((spec.id for spec in all_models() if spec.id == wanted), None)


def compare(base: Cell, points: Sequence[Point]) -> Comparison:
    """Points that were measured on the deployment of ``base``, beside what is predicted there.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``diagnose``.
    """
    base = replace(base, times="typical")
    ideal = cost_model(replace(base, times="ideal"))
    if not isinstance(ideal, StepCostModel):
        raise AssertionError("ideal times are those of a StepCostModel")
    curve = RooflineCurve(ideal.roofline.bandwidth, ideal.roofline.matmul)
    compared = tuple(
        _compared(point, seen, ideal) for point in points if (seen := observation(base, point))
    )
    if not compared:
        return Comparison(base, curve, (), None, None)
    first = max(compared, key=lambda item: item.farthest)
    others = [item for item in compared if item is not first]
    seen = [item.found.observations[0] for item in (first, *others)]
    return Comparison(base, curve, compared, diagnose(seen[:MAX_OBSERVATIONS]), first)


def observation(base: Cell, point: Point) -> Observation | None:
    """What a point has seen, with medians over its answers; None where too few came.

    Clients start one by one, so that a first token waits for the prefill of one prompt.
    """
    ttft, itl, output = point.ttft, point.itl, point.output_tokens
    if ttft is None or output is None or ttft.count < _LEAST_GOOD:
        return None
    tokens = max(1, round(output))
    cell = replace(
        base,
        batch=point.concurrency,
        prompt_tokens=max(1, round(point.prompt_tokens or point.wanted_tokens)),
        output_tokens=tokens,
    )
    if itl is None or tokens < 2:
        return Observation(cell, ttft.p50)
    # What nobody else can have caused is not taken for a sign of others' prompts.
    tail = point.token_gaps if point.concurrency > 1 else None
    return Observation(cell, ttft.p50, itl.p50, None if tail is None else tail.p99)


def _compared(point: Point, seen: Observation, ideal: StepCostModel) -> Compared:
    cell = seen.cell
    found = diagnose([seen])
    prompt = scaled_shape(ideal.step, [(1, 0, cell.prompt_tokens)])
    context = cell.prompt_tokens + cell.output_tokens // 2
    token = scaled_shape(ideal.step, [(cell.batch, context, 1)])
    dots = [
        _dot(name, ideal, shape, phase)
        for name, shape, phase in (
            ("prefill", prompt, found.start),
            ("decode", token, found.stream),
        )
        if phase.measured is not None
    ]
    return Compared(
        point, cell, estimate(replace(cell, times="ideal")), estimate(cell), found, tuple(dots)
    )


def _dot(name: str, ideal: StepCostModel, shape: StepShape, phase: Phase) -> Dot:
    """The step at the rate that its time makes of it."""
    if phase.measured is None:
        raise AssertionError("only a measured step is on the roofline")
    cost = ideal.cost_of(shape)
    devices = ideal.group.devices
    flops, moved = cost.flops / devices, cost.bytes / devices
    rate, bandwidth = flops / phase.measured, moved / phase.measured
    return Dot(
        phase=name,
        sequences=shape.sampled,
        intensity=flops / moved,
        measured=rate,
        typical=flops / phase.typical,
        bandwidth=bandwidth,
        mbu=bandwidth / ideal.roofline.bandwidth,
        mfu=rate / ideal.roofline.matmul,
    )
