"""Measured serving runs, and the same requests through the serving simulator.

    run = read_services()[0]
    predicted = predict(run)             what the program says
    predict(run, values)                 by other efficiencies, such as a fold's

The lengths and arrivals of every request are those of the run, its engine's settings too. No
number is fitted to these runs: efficiencies come from the published measurements of `make
validate`, among which these projects' are not.
"""

from __future__ import annotations

import statistics
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from engine.catalog.loading import Table
from engine.errors import FileFormatError
from engine.simulator.cost_model import CostModel
from engine.simulator.deployment import Deployment
from engine.simulator.efficiency import Values, resolve
from engine.simulator.layout import Layout
from engine.simulator.serving.recorder import RequestTimes
from engine.simulator.serving.routing import Routing
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.settings import EngineSettings
from engine.simulator.serving.simulation import simulate_serving
from engine.simulator.serving.trace import Trace, read_trace
from engine.simulator.serving.workload import TraceWorkload
from engine.simulator.typical import TypicalCostModel
from engine.simulator.validation.cases import is_old_vllm
from engine.simulator.validation.measurement import data_folder

Statistic = Literal["mean", "p50"]
STATISTICS: tuple[Statistic, ...] = ("mean", "p50")


class Latencies(NamedTuple):
    """Seconds over the requests of a run; ``e2e`` None where it was not published.

    ``itl`` as a mean is over all gaps between tokens, as p50 over the requests' mean gaps.
    """

    ttft: float
    itl: float
    e2e: float | None


@dataclass(frozen=True, slots=True)
class MeasuredService:
    """A service that ran: what, on what, as it was set, and what was measured.

    ``assumed`` names what the source leaves open; ``source`` is the project and its state.
    """

    id: str
    model: str
    hardware: str
    layout: Layout
    version: str
    settings: EngineSettings
    memory_utilization: float
    statistic: Statistic
    measured: Latencies
    assumed: tuple[str, ...]
    source: str

    @property
    def engine(self) -> str:
        """The engine's id among the efficiencies: vLLM before and after it was rewritten."""
        return "vllm-v0" if is_old_vllm(self.version) else "vllm"

    def trace(self) -> Trace:
        """Arrivals and lengths of its requests.

        Raises:
            InvalidRequest: the stored file is no trace.
        """
        path = data_folder() / "serving" / "requests" / f"{self.id}.csv"
        return read_trace(path.read_text(encoding="utf-8"))

    def scenario(self, values: Values | None = None) -> ServingScenario:
        """The run as a question to the simulator; ``values`` None takes the program's."""
        deployment = _Recalibrated(
            self.model,
            self.hardware,
            self.layout,
            times="typical",
            engine=self.engine,
            memory_utilization=self.memory_utilization,
            values=values,
        )
        return ServingScenario(
            deployment, TraceWorkload(self.trace()), self.settings, routing=Routing.LEAST_LOADED
        )


@dataclass(frozen=True, slots=True)
class _Recalibrated(Deployment):
    """A deployment at typical times by other efficiencies than the program's."""

    values: Values | None = None

    def cost_model(self) -> CostModel:
        model = Deployment.cost_model(self)
        if self.values is not None and isinstance(model, TypicalCostModel):
            model.rates = resolve(model.setting, self.values)
        return model


@cache
def read_services() -> tuple[MeasuredService, ...]:
    """All stored runs."""
    text = (data_folder() / "serving" / "runs.toml").read_text(encoding="utf-8")
    return parse_services(text)


def parse_services(text: str) -> tuple[MeasuredService, ...]:
    """The runs in a text as in ``runs.toml``.

    Raises:
        FileFormatError: an entry is incomplete or has what is not known.
    """
    root = Table(tomllib.loads(text), "measurements/serving/runs.toml")
    return tuple(_read(entry) for entry in root.tables("runs"))


def _read(entry: Table) -> MeasuredService:
    statistic = entry.text("statistic")
    if statistic not in STATISTICS:
        raise FileFormatError(f"{entry.text('id')}: statistic is mean or p50", field="statistic")
    found = MeasuredService(
        id=entry.text("id"),
        model=entry.text("model"),
        hardware=entry.text("hardware"),
        layout=Layout(entry.integer("tensor"), entry.integer("data"), entry.flag("experts")),
        version=entry.text("engine_version"),
        settings=EngineSettings(
            max_running=entry.integer("max_running"),
            max_step_tokens=entry.integer("max_step_tokens"),
            chunked_prefill=entry.flag("chunked_prefill"),
        ),
        memory_utilization=entry.number("memory_utilization"),
        statistic=statistic,
        measured=Latencies(
            entry.number("ttft_ms") / 1e3,
            entry.number("itl_ms") / 1e3,
            entry.number("e2e_ms") / 1e3 if "e2e_ms" in entry else None,
        ),
        assumed=entry.texts("assumed"),
        source=entry.text("source"),
    )
    entry.done()
    return found


def predict(run: MeasuredService, values: Values | None = None) -> Latencies:
    """What the simulator says of a run, in the statistic in which it was measured."""
    answered: list[RequestTimes] = []
    result = simulate_serving(run.scenario(values), on_request=answered.append)
    ttft = [times.ttft for times in answered]
    e2e = [times.e2e for times in answered]
    if run.statistic == "p50":
        gaps = [times.tpot for times in answered if times.tpot is not None]
        return Latencies(*(statistics.median(column) for column in (ttft, gaps, e2e)))
    if result.itl is None:
        raise FileFormatError(f"{run.id}: no answer has two tokens", field="requests")
    return Latencies(statistics.fmean(ttft), result.itl.mean, statistics.fmean(e2e))
