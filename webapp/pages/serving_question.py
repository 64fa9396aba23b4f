"""What the serving page asks: a service, its load, and what it promises. The query is the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import ClassVar
from urllib.parse import urlencode

from engine.refusals import refused
from engine.simulator.deployment import Deployment
from engine.simulator.layout import Layout
from engine.simulator.serving.arrivals import (
    Arrivals,
    ClosedLoop,
    GammaArrivals,
    PoissonArrivals,
)
from engine.simulator.serving.lengths import FixedLength, Lengths, LogNormalLength
from engine.simulator.serving.routing import Routing
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.settings import EngineSettings, ServiceLevel
from engine.simulator.serving.trace import Trace, read_trace
from engine.simulator.serving.workload import PrefixGroups, TraceWorkload, Workload
from webapp.pages.query import Knobs

CHUNKED = "chunked"
PREFILLS = (CHUNKED, "whole")
MOST_EFFORT = 2.0
"""Seconds that a run on the page may take, about; the API takes longer ones, as jobs."""
MOST_TRACE_EFFORT = 20.0
"""The same of a trace, which is not run again with every move of a knob."""


@dataclass(frozen=True, slots=True)
class ServingQuestion:
    """The knobs as they stand. Times of the promise in ms; 0 promises nothing.

    With a ``trace`` (CSV or JSON lines) requests come as it says, ``speed`` times as fast; where it
    has no times they arrive as the knobs say. ``usd`` is the price of one device an hour; None
    takes the published one. With ``clients`` that many wait for their answers, think ``think``
    seconds each and ask again; ``rate`` and ``burst`` then say nothing. ``utilization`` in percent.
    """

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
    clients: int = 0
    think: float = 0.0
    kv: str = "bf16"
    utilization: int = 90
    prefill: str = CHUNKED
    usd: float | None = None
    speed: float = 1.0
    trace: str = ""

    WHOLE: ClassVar[dict[str, tuple[int, int]]] = {
        "tensor": (1, 64), "replicas": (1, 32), "requests": (20, 1000), "prompt": (1, 100_000),
        "output": (1, 10_000), "running": (1, 4096), "step": (16, 65_536), "shared": (0, 100),
        "ttft": (0, 600_000), "tpot": (0, 60_000), "seed": (0, 1_000_000), "clients": (0, 4096),
        "utilization": (1, 100),
    }  # fmt: skip
    REAL: ClassVar[dict[str, tuple[float, float]]] = {
        "rate": (0.01, 1000.0), "burst": (0.0, 5.0), "spread": (0.0, 5.0),
        "speed": (0.001, 1000.0), "think": (0.0, 3600.0),
    }  # fmt: skip
    NUMBERS: ClassVar[tuple[str, ...]] = (*WHOLE, *REAL)
    MOST_USD: ClassVar[float] = 10_000

    @property
    def query(self) -> str:
        """The query string that asks this; a trace is too long for one and is left out."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        del given["trace"]
        return urlencode({name: value for name, value in given.items() if value is not None})

    def scenario(self) -> ServingScenario:
        """The question in the simulator's terms.

        Raises:
            InvalidRequest, UnknownName: a knob is wrong (names the field), or the run is too long.
        """
        deployment = Deployment(
            self.model,
            self.hardware,
            Layout(self.tensor),
            self.weights,
            self.kv,
            times="typical",
            memory_utilization=self.utilization / 100,
        )
        workload = self._recorded() if self.trace else self._drawn()
        settings = EngineSettings(
            self.running,
            self.step,
            chunked_prefill=self.prefill == CHUNKED,
            prefix_caching=self._shares_prefixes(workload),
        )
        promise = ServiceLevel(
            ttft_s=self.ttft / 1e3 if self.ttft else None,
            tpot_s=self.tpot / 1e3 if self.tpot else None,
        )
        scenario = ServingScenario(
            deployment, workload, settings, self.replicas, Routing(self.routing), promise, self.seed
        )
        if scenario.effort > (MOST_TRACE_EFFORT if self.trace else MOST_EFFORT):
            field = "trace" if self.trace else "requests"
            raise refused("run_too_long_for_the_page", field=field)
        return scenario

    def _recorded(self) -> TraceWorkload:
        trace = _read(self.trace)
        return TraceWorkload(trace, self.speed, arrivals=None if trace.has_times else self._times())

    def _drawn(self) -> Workload:
        groups = PrefixGroups(4, max(self.prompt * self.shared // 100, 1)) if self.shared else None
        lengths = self._length(self.prompt), self._length(self.output)
        return Workload(self._times(), *lengths, self.requests, groups)

    def _times(self) -> Arrivals:
        if self.clients:
            return ClosedLoop(self.clients, self.think)
        if self.burst == 1:
            return PoissonArrivals(self.rate)
        return GammaArrivals(self.rate, max(self.burst, 0.05))

    def _shares_prefixes(self, workload: Workload | TraceWorkload) -> bool:
        if isinstance(workload, TraceWorkload):
            return workload.trace.has_prefixes
        return bool(self.shared)

    def at(self, factor: float, requests: int) -> ServingQuestion:
        """The same service at another load."""
        return replace(
            self,
            rate=self.rate * factor,
            clients=max(round(self.clients * factor), 1) if self.clients else 0,
            requests=min(self.requests, requests),
        )

    def _length(self, mean: int) -> Lengths:
        return LogNormalLength(mean, self.spread) if self.spread else FixedLength(mean)


def read_serving_question(query: Mapping[str, str]) -> ServingQuestion:
    """The question in a query string; numbers are brought into range."""
    knobs, default = Knobs(query), ServingQuestion()

    def whole(name: str) -> int:
        return knobs.whole(name, getattr(default, name), *ServingQuestion.WHOLE[name])

    def real(name: str) -> float:
        return knobs.real(name, getattr(default, name), *ServingQuestion.REAL[name])

    return ServingQuestion(
        model=knobs.text("model", default.model),
        hardware=knobs.text("hardware", default.hardware),
        weights=knobs.text("weights", default.weights),
        routing=knobs.choice("routing", default.routing, tuple(kind.value for kind in Routing)),
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
        clients=whole("clients"),
        think=real("think"),
        kv=knobs.text("kv", default.kv),
        utilization=whole("utilization"),
        prefill=knobs.choice("prefill", default.prefill, PREFILLS),
        spread=real("spread"),
        usd=knobs.optional("usd", 0, ServingQuestion.MOST_USD),
        speed=real("speed"),
    )


def read_trace_question(query: Mapping[str, str]) -> ServingQuestion:
    """The question of a form that is posted, with a trace; an empty one is a trace as well."""
    return replace(read_serving_question(query), trace=query.get("trace", "").strip() or "\n")


@lru_cache(maxsize=4)
def _read(trace: str) -> Trace:
    """The trace; a page asks for the same one several times."""
    return read_trace(trace)
