"""What the serving page asks: a service, its load, and what it promises. The query is the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from engine.errors import InvalidRequest
from engine.simulator.deployment import Deployment
from engine.simulator.layout import Layout
from engine.simulator.serving.arrivals import GammaArrivals, PoissonArrivals
from engine.simulator.serving.lengths import FixedLength, Lengths, LogNormalLength
from engine.simulator.serving.routing import Routing
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.settings import EngineSettings, ServiceLevel
from engine.simulator.serving.workload import PrefixGroups, Workload

MOST_EFFORT = 2.0
"""Seconds that a run on the page may take, about; the API takes longer ones, as jobs."""


@dataclass(frozen=True, slots=True)
class ServingQuestion:
    """The knobs as they stand. Times of the promise in ms; 0 promises nothing."""

    model: str = "llama-3.1-8b"
    hardware: str = "h100-sxm"
    tensor: int = 1
    weights: str = "bf16"
    replicas: int = 1
    routing: str = "least-loaded"
    rate: float = 8.0
    burst: float = 1.0
    requests: int = 200
    prompt: int = 1000
    output: int = 200
    spread: float = 0.8
    running: int = 256
    step: int = 2048
    shared: int = 0
    ttft: int = 500
    tpot: int = 30
    seed: int = 1

    WHOLE: ClassVar[dict[str, tuple[int, int]]] = {
        "tensor": (1, 64), "replicas": (1, 32), "requests": (20, 1000), "prompt": (1, 100_000),
        "output": (1, 10_000), "running": (1, 4096), "step": (16, 65_536), "shared": (0, 100),
        "ttft": (0, 600_000), "tpot": (0, 60_000), "seed": (0, 1_000_000),
    }  # fmt: skip
    REAL: ClassVar[dict[str, tuple[float, float]]] = {
        "rate": (0.01, 1000.0), "burst": (0.0, 5.0), "spread": (0.0, 5.0),
    }  # fmt: skip

    def scenario(self) -> ServingScenario:
        """The question in the simulator's terms.

        Raises:
            InvalidRequest, UnknownName: a knob is wrong (names the field), or the run is too long.
        """
        deployment = Deployment(
            self.model, self.hardware, Layout(self.tensor), self.weights, times="typical"
        )
        arrivals = (
            PoissonArrivals(self.rate)
            if self.burst == 1
            else GammaArrivals(self.rate, max(self.burst, 0.05))
        )
        groups = PrefixGroups(4, max(self.prompt * self.shared // 100, 1)) if self.shared else None
        workload = Workload(
            arrivals, self._length(self.prompt), self._length(self.output), self.requests, groups
        )
        settings = EngineSettings(self.running, self.step, prefix_caching=bool(self.shared))
        promise = ServiceLevel(
            ttft_s=self.ttft / 1e3 if self.ttft else None,
            tpot_s=self.tpot / 1e3 if self.tpot else None,
        )
        scenario = ServingScenario(
            deployment, workload, settings, self.replicas, Routing(self.routing), promise, self.seed
        )
        if scenario.effort > MOST_EFFORT:
            raise InvalidRequest(
                "this run is too long for the page; choose fewer requests or shorter answers",
                field="requests",
            )
        return scenario

    def at(self, factor: float, requests: int) -> ServingQuestion:
        """The same service at another load."""
        return replace(self, rate=self.rate * factor, requests=min(self.requests, requests))

    def _length(self, mean: int) -> Lengths:
        return LogNormalLength(mean, self.spread) if self.spread else FixedLength(mean)


def read_serving_question(query: Mapping[str, str]) -> ServingQuestion:
    """The question in a query string; numbers are brought into range."""
    default = ServingQuestion()

    def text(name: str) -> str:
        return query.get(name, getattr(default, name))[:100]

    def whole(name: str) -> int:
        low, high = ServingQuestion.WHOLE[name]
        given = query.get(name, "").strip()
        if not (given.isascii() and given.isdigit()):
            return getattr(default, name)
        return min(max(int(given[:12]), low), high)

    def real(name: str) -> float:
        low, high = ServingQuestion.REAL[name]
        try:
            value = float(query.get(name, "")[:20])
        except ValueError:
            return getattr(default, name)
        return min(max(value, low), high) if value == value else getattr(default, name)

    routing = text("routing")
    return ServingQuestion(
        model=text("model"),
        hardware=text("hardware"),
        weights=text("weights"),
        routing=routing if routing in [kind.value for kind in Routing] else default.routing,
        tensor=whole("tensor"),
        replicas=whole("replicas"),
        requests=whole("requests"),
        prompt=whole("prompt"),
        output=whole("output"),
        running=whole("running"),
        step=whole("step"),
        shared=whole("shared"),
        ttft=whole("ttft"),
        tpot=whole("tpot"),
        seed=whole("seed"),
        rate=real("rate"),
        burst=real("burst"),
        spread=real("spread"),
    )
