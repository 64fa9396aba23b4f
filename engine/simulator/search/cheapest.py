"""The cheapest deployment that answers a load within limits, why others do not, and the front.

found = cheapest(Requirement("llama-3.1-70b", rate=4, prompt_tokens=1000, output_tokens=300,
                             ttft=0.5, itl=0.03))
found.best[0]      Candidate: hardware, devices, formats, replicas, usd_per_hour, ttft, itl
found.failed       every other candidate with the limit that it misses
found.front        per device: tokens/s against ITL, where nothing is better in both
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engine.catalog.hardware import get_hardware, published_hardware
from engine.catalog.models import get_model
from engine.catalog.precision import get_format
from engine.refusals import refused
from engine.simulator.deployment import Times
from engine.simulator.efficiency import DEFAULT_ENGINE, engine_ids, no_such_engine
from engine.simulator.search.cell import Cell
from engine.simulator.search.curves import StructureCurves, structure_curves
from engine.simulator.search.load import under_load
from engine.simulator.search.pareto import pareto_front
from engine.simulator.search.uniform import Floats


@dataclass(frozen=True, slots=True)
class Requirement:
    """A load, limits on the means of its times, and the deployments to choose from.

    ``rate`` requests/s arrive at random, each of so many prompt and output tokens; ``ttft`` and
    ``itl`` are the most that their means may be, in s. ``hardware``: ids, or None for every device
    that has a price.

    Raises:
        InvalidRequest: a number is out of its range, or there is nothing to choose from.
    """

    model: str
    rate: float
    prompt_tokens: int
    output_tokens: int
    ttft: float
    itl: float
    hardware: tuple[str, ...] | None = None
    devices: tuple[int, ...] = (1, 2, 4, 8)
    weights: tuple[str, ...] = ("bf16", "fp8")
    kv: tuple[str, ...] = ("bf16",)
    times: Times = "typical"
    engine: str = DEFAULT_ENGINE
    max_replicas: int = 64
    memory_utilization: float = 0.9

    MAX_CHOICES: ClassVar[int] = 16

    def __post_init__(self) -> None:
        for name in ("rate", "ttft", "itl"):
            if not 0 < getattr(self, name) < 1e6:
                raise refused("choose_below", field=name, high="1,000,000")
        if not 1 <= self.max_replicas <= 256:
            raise refused("choose_whole", field="max_replicas", low=1, high=256)
        if not 0 < self.memory_utilization <= 1:
            raise refused("choose_share", field="memory_utilization")
        for name in ("devices", "weights", "kv"):
            if not 1 <= len(getattr(self, name)) <= self.MAX_CHOICES:
                raise refused("choices_at_most", field=name, high=self.MAX_CHOICES)
        if self.output_tokens < 2:
            raise refused("two_tokens_at_least", field="output_tokens")
        if not self.devices_to_choose:
            raise refused("no_devices", field="hardware")

    def check_names(self) -> None:
        """Refuses names that do not exist, before anything is priced.

        Raises:
            UnknownName: of a model, a device, an engine or a format (names the field).
        """
        get_model(self.model)
        for name in self.devices_to_choose:
            get_hardware(name)
        for field in ("weights", "kv"):
            for name in getattr(self, field):
                get_format(name, field)
        if self.engine not in engine_ids():
            raise no_such_engine()

    @property
    def devices_to_choose(self) -> tuple[str, ...]:
        """Ids of the devices."""
        if self.hardware is not None:
            return self.hardware
        return tuple(spec.id for spec in published_hardware() if spec.price is not None)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A deployment with the fewest replicas that carry the load, and its means there.

    ``max_batch`` is the largest batch whose decode step keeps the limit on ITL and that memory
    holds: a sensible cap. ``usd_per_hour`` is of all replicas, None without a known price.
    ``fails`` says which limit it misses, None where it keeps all.
    """

    hardware: str
    devices: int
    weights: str
    kv: str
    replicas: int
    usd_per_hour: float | None
    ttft: float | None
    itl: float | None
    batch: float | None
    max_batch: int
    fails: str | None


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A deployment at a batch: output tokens/s per device against ITL [s]."""

    hardware: str
    devices: int
    weights: str
    kv: str
    batch: int
    itl: float
    tokens_per_s_per_device: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What keeps all limits, the cheapest first (those without a price last); what does not; and
    the front of all deployments, by ITL."""

    requirement: Requirement
    best: tuple[Candidate, ...]
    failed: tuple[Candidate, ...]
    front: tuple[FrontPoint, ...]


def cheapest(requirement: Requirement) -> SearchResult:
    """Search all combinations of devices, their numbers and formats.

    Raises:
        UnknownName, InvalidRequest, UnsupportedModel: as for ``estimate``.
    """
    requirement.check_names()
    found: list[Candidate] = []
    points: list[FrontPoint] = []
    for devices, weights, kv in itertools.product(
        requirement.devices, requirement.weights, requirement.kv
    ):
        base = Cell(
            requirement.model,
            requirement.devices_to_choose[0],
            devices=devices,
            weights=weights,
            kv=kv,
            times=requirement.times,
            engine=requirement.engine,
            prompt_tokens=requirement.prompt_tokens,
            output_tokens=requirement.output_tokens,
        )
        curves = structure_curves(
            base, requirement.devices_to_choose, requirement.memory_utilization
        )
        found += _candidates(requirement, base, curves)
        points += _points(base, curves)
    best = sorted((item for item in found if item.fails is None), key=_price)
    failed = [item for item in found if item.fails is not None]
    front = pareto_front(
        np.array([point.itl for point in points]),
        np.array([point.tokens_per_s_per_device for point in points]),
    )
    return SearchResult(
        requirement, tuple(best), tuple(failed), tuple(points[place] for place in front)
    )


def _price(candidate: Candidate) -> tuple[float, float]:
    price = candidate.usd_per_hour
    return (math.inf if price is None else price, candidate.itl or 0.0)


def _candidates(requirement: Requirement, base: Cell, curves: StructureCurves) -> list[Candidate]:
    service = curves.service
    replicas = np.arange(1, requirement.max_replicas + 1)
    rates: Floats = np.tile(requirement.rate / replicas, (len(curves.hardware), 1))
    load = under_load(service, rates)
    good = load.stable & (load.ttft <= requirement.ttft) & (load.itl <= requirement.itl)
    found: list[Candidate] = []
    for row, name in enumerate(curves.hardware):
        place = int(np.argmax(good[row])) if good[row].any() else len(replicas) - 1
        fails = curves.refusal(row) or (
            None if good[row].any() else _miss(requirement, curves, row)
        )
        counted = int(replicas[place])
        price = float(curves.price[row]) * base.devices * counted
        there = curves.refusal(row) is None and bool(load.stable[row, place])
        found.append(
            Candidate(
                hardware=name,
                devices=base.devices,
                weights=base.weights,
                kv=base.kv,
                replicas=counted,
                usd_per_hour=None if math.isnan(price) else price,
                ttft=float(load.ttft[row, place]) if there else None,
                itl=float(load.itl[row, place]) if there else None,
                batch=float(load.batch[row, place]) if there else None,
                max_batch=_largest_batch(curves, row, requirement.itl),
                fails=fails,
            )
        )
    return found


def _miss(requirement: Requirement, curves: StructureCurves, row: int) -> str:
    """The limit that a deployment misses whatever its replicas, or with as many as are allowed."""
    service = curves.service
    alone = float(service.prefill[row] + service.first[row])
    if alone > requirement.ttft:
        return f"TTFT: a request alone takes {alone:.3g} s"
    step = float(service.steps[row, 0])
    if step > requirement.itl:
        return f"ITL: a request alone takes {step:.3g} s a token"
    return f"load: {requirement.max_replicas} replicas do not keep the limits at this rate"


def _largest_batch(curves: StructureCurves, row: int, itl: float) -> int:
    most = math.floor(curves.service.most[row])
    if most < 1 or curves.service.steps[row, 0] > itl:
        return 0
    sizes, steps = curves.service.sizes, curves.service.steps[row]
    # Steps take longer with every further request, so that they can be inverted.
    return min(most, math.floor(np.interp(itl, steps, sizes)))


def _points(base: Cell, curves: StructureCurves) -> list[FrontPoint]:
    """All batches of the curves that memory holds."""
    found: list[FrontPoint] = []
    service = curves.service
    for row, name in enumerate(curves.hardware):
        for place, size in enumerate(service.sizes.tolist()):
            if size <= service.most[row]:
                itl = float(service.steps[row, place])
                rate = size / itl / base.devices
                found.append(
                    FrontPoint(name, base.devices, base.weights, base.kv, int(size), itl, rate)
                )
    return found
