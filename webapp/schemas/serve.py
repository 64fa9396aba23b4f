"""``POST /api/v1/serve``: a service under load, its document, and jobs for long runs."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from engine.catalog.device import HardwareSpec
from engine.catalog.inline import hardware_from, model_from
from engine.catalog.model_spec import ModelSpec
from engine.errors import InvalidRequest
from engine.refusals import refused
from engine.scheduling.policies import POLICIES
from engine.simulator.deployment import Deployment
from engine.simulator.layout import MAX_DEVICES, Layout
from engine.simulator.serving import arrivals, lengths, settings, workload
from engine.simulator.serving.routing import Routing
from engine.simulator.serving.scenario import MAX_REPLICAS, MAX_SEED, ServingScenario
from engine.simulator.serving.trace import read_trace
from webapp.schemas.base import Name, NameOrObject, OutputModel, StrictModel

MAX_REQUESTS = 200_000
MAX_EFFORT_S = 600.0
"""About how long a run may take."""

Rate = Annotated[float, Field(ge=1 / arrivals.MAX_RATE, le=arrivals.MAX_RATE)]
Tokens = Annotated[int, Field(ge=1, le=lengths.MAX_TOKENS)]
Limit = Annotated[float, Field(ge=1e-9, le=1e9)] | None


class PoissonQuestion(StrictModel):
    """Independent users."""

    kind: Literal["poisson"]
    rate: Rate = Field(description="Requests/s.")

    def build(self) -> arrivals.PoissonArrivals:
        """The engine's form."""
        return arrivals.PoissonArrivals(self.rate)


class GammaQuestion(StrictModel):
    """Bursts (``cv`` above 1) or a steady stream (below)."""

    kind: Literal["gamma"]
    rate: Rate = Field(description="Requests/s.")
    cv: float = Field(default=1.0, ge=0, le=100, description="Deviation of the gaps over mean.")

    def build(self) -> arrivals.GammaArrivals:
        """The engine's form."""
        return arrivals.GammaArrivals(self.rate, self.cv)


class ClosedLoopQuestion(StrictModel):
    """Clients that wait for their answers."""

    kind: Literal["closed-loop"]
    clients: int = Field(ge=1, le=arrivals.MAX_CLIENTS)
    think_s: float = Field(default=0.0, ge=0, le=arrivals.MAX_THINK_S)
    exponential: bool = False

    def build(self) -> arrivals.ClosedLoop:
        """The engine's form."""
        return arrivals.ClosedLoop(self.clients, self.think_s, self.exponential)


Arrivals = Annotated[
    PoissonQuestion | GammaQuestion | ClosedLoopQuestion, Field(discriminator="kind")
]


class FixedQuestion(StrictModel):
    """Always the same number of tokens."""

    kind: Literal["fixed"]
    tokens: Tokens

    def build(self) -> lengths.FixedLength:
        """The engine's form."""
        return lengths.FixedLength(self.tokens)


class UniformQuestion(StrictModel):
    """Each number of tokens from ``low`` to ``high`` with the same chance."""

    kind: Literal["uniform"]
    low: Tokens
    high: Tokens

    def build(self) -> lengths.UniformLength:
        """The engine's form."""
        return lengths.UniformLength(self.low, self.high)


class LogNormalQuestion(StrictModel):
    """Lengths as those of real texts; ``cv`` is their deviation over the mean."""

    kind: Literal["lognormal"]
    mean: float = Field(ge=1, le=lengths.MAX_TOKENS)
    cv: float = Field(default=1.0, ge=0, le=100)
    most: Tokens = lengths.MAX_TOKENS

    def build(self) -> lengths.LogNormalLength:
        """The engine's form."""
        return lengths.LogNormalLength(self.mean, self.cv, self.most)


Lengths = Annotated[
    FixedQuestion | UniformQuestion | LogNormalQuestion, Field(discriminator="kind")
]


class PrefixQuestion(StrictModel):
    """Prompts that begin alike, as under a few system prompts."""

    groups: int = Field(ge=1, le=1_000_000)
    tokens: Tokens
    share: float = Field(default=1.0, ge=0, le=1)


class DrawnQuestion(StrictModel):
    """Requests with drawn arrivals and lengths."""

    kind: Literal["drawn"]
    arrivals: Arrivals
    prompts: Lengths
    outputs: Lengths
    requests: int = Field(default=1000, ge=1, le=MAX_REQUESTS)
    prefixes: PrefixQuestion | None = None

    def build(self) -> workload.Workload:
        """The engine's form.

        Raises:
            InvalidRequest: numbers do not go together (names the field).
        """
        with _inside("workload.prompts"):
            prompts = self.prompts.build()
        with _inside("workload.outputs"):
            outputs = self.outputs.build()
        shared = self.prefixes
        prefixes = shared and workload.PrefixGroups(shared.groups, shared.tokens, shared.share)
        return workload.Workload(self.arrivals.build(), prompts, outputs, self.requests, prefixes)


class TraceQuestion(StrictModel):
    """Requests as they were recorded."""

    kind: Literal["trace"]
    text: str = Field(
        min_length=1,
        max_length=16 * 2**20,
        description="CSV or JSON lines. The whole request may have FIRSTTOKEN_MAX_BODY_BYTES bytes "
        "(256 KiB unless set); `python -m engine serve --trace` takes larger ones.",
    )
    format: Literal["csv", "jsonl"] | None = None
    speed: float = Field(default=1.0, ge=1e-6, le=1e6)
    requests: int | None = Field(default=None, ge=1, le=MAX_REQUESTS)
    arrivals: Arrivals | None = Field(default=None, description="Instead of the trace's times.")

    def build(self) -> workload.TraceWorkload:
        """The engine's form.

        Raises:
            InvalidRequest: the text is no trace (field "workload.text").
        """
        try:
            trace = read_trace(self.text, self.format)
        except InvalidRequest as error:
            raise error.at("workload.text") from None
        requests = self.requests
        if requests is None and len(trace.rows) > MAX_REQUESTS:
            high = f"{MAX_REQUESTS:,}"
            raise refused("requests_at_most", field="workload.requests", high=high)
        with _inside("workload"):
            given = self.arrivals
            return workload.TraceWorkload(trace, self.speed, requests, given and given.build())


class LayoutQuestion(StrictModel):
    """How a replica is divided over devices."""

    tensor: int = Field(default=1, ge=1, le=MAX_DEVICES)
    data: int = Field(default=1, ge=1, le=MAX_DEVICES)
    experts: bool = False
    stages: int = Field(default=1, ge=1, le=MAX_DEVICES)
    imbalance: float = Field(default=1.0, ge=1, le=1000, description="Of experts; 1 is even.")
    per_node: int | None = Field(default=None, ge=1, le=MAX_DEVICES)


class EngineQuestion(StrictModel):
    """What the serving engine is set to."""

    max_running: int = Field(default=256, ge=1, le=65_536)
    max_step_tokens: int = Field(default=8192, ge=1, le=16_777_216)
    chunked_prefill: bool = True
    prefix_caching: bool = False
    policy: str = Field(default="first-come", description=f"One of {', '.join(POLICIES)}.")
    kv_blocks: int | None = Field(
        default=None, ge=1, le=2**24, description="Of each scheduler; null takes what fits."
    )


class SloQuestion(StrictModel):
    """Limits in seconds that a good request keeps."""

    ttft_s: Limit = None
    tpot_s: Limit = None
    e2e_s: Limit = None


class ServeRequest(StrictModel):
    """``replicas`` equal deployments of a model behind one router, under a workload."""

    model: NameOrObject = Field(
        description='An id of GET /api/v1/models, or {"config": …} with a config.json.'
    )
    hardware: NameOrObject = Field(
        description='An id of GET /api/v1/hardware, this-machine, or {"custom": …}.'
    )
    layout: LayoutQuestion = LayoutQuestion()
    weights: Name = "bf16"
    kv: Name = "bf16"
    activations: Name | None = None
    times: Literal["ideal", "typical"] = "typical"
    serving_engine: Name | None = None
    memory_utilization: float = Field(default=0.9, gt=0, le=1)
    block_size: int = Field(default=16, ge=1, le=4096)
    workload: Annotated[DrawnQuestion | TraceQuestion, Field(discriminator="kind")]
    engine: EngineQuestion = EngineQuestion()
    replicas: int = Field(default=1, ge=1, le=MAX_REPLICAS)
    routing: Literal["round-robin", "least-loaded", "prefix-aware"] = "round-robin"
    slo: SloQuestion = SloQuestion()
    seed: int = Field(default=0, ge=0, le=MAX_SEED)

    def to_scenario(self) -> ServingScenario:
        """The engine's question.

        Raises:
            UnknownName, InvalidRequest, UnsupportedModel, FileFormatError: a name does not exist,
                values do not go together, or the run would take too long (names the field).
        """
        model: str | ModelSpec = (
            self.model if isinstance(self.model, str) else model_from(self.model)
        )
        hardware: str | HardwareSpec = (
            self.hardware if isinstance(self.hardware, str) else hardware_from(self.hardware)
        )
        deployment = Deployment(
            model=model,
            hardware=hardware,
            layout=Layout(**self.layout.model_dump()),
            weights=self.weights,
            kv=self.kv,
            activations=self.activations,
            times=self.times,
            engine=self.serving_engine,
            memory_utilization=self.memory_utilization,
            block_size=self.block_size,
        )
        # Names that do not exist are refused at once, not by a job that waited for its turn.
        deployment.cost_model()
        with _inside("engine"):
            engine = settings.EngineSettings(**self.engine.model_dump())
        scenario = ServingScenario(
            deployment,
            self.workload.build(),
            engine,
            self.replicas,
            Routing(self.routing),
            settings.ServiceLevel(**self.slo.model_dump()),
            self.seed,
        )
        if scenario.effort > MAX_EFFORT_S:
            raise refused("run_too_long", field="workload.requests")
        return scenario


def _kinds(*models: type[StrictModel]) -> frozenset[str]:
    return frozenset(
        kind for model in models for kind in get_args(model.model_fields["kind"].annotation)
    )


_LENGTHS = _kinds(FixedQuestion, UniformQuestion, LogNormalQuestion)
UNION_TAGS: Mapping[str, frozenset[str]] = {
    "workload": _kinds(DrawnQuestion, TraceQuestion),
    "arrivals": _kinds(PoissonQuestion, GammaQuestion, ClosedLoopQuestion),
    "prompts": _LENGTHS,
    "outputs": _LENGTHS,
}
"""Fields of several kinds: pydantic names the kind behind the field, where no document has it."""


@contextmanager
def _inside(path: str) -> Generator[None]:
    """Names the place in the document where the engine's field stands."""
    try:
        yield
    except InvalidRequest as error:
        field = path if error.field is None else f"{path}.{error.field}"
        raise error.at(field) from None


class ServingDocument(OutputModel):
    """The answer; the same document as ``python -m engine serve --json``."""

    model_config = ConfigDict(extra="allow")

    scenario: dict[str, object]
    assumptions: list[str]
    requests: dict[str, object]
    latency: dict[str, object]
    throughput: dict[str, object]
    utilization: dict[str, object]
    kv_cache: dict[str, object]
    checks: dict[str, object]
    series: dict[str, object]


class JobProgress(OutputModel):
    """``answered`` of ``requests`` requests, after so many simulated seconds."""

    answered: int
    requests: int
    simulated_s: float


class JobDocument(OutputModel):
    """A long run. ``result`` is there once it is done, ``problem`` once it has failed."""

    id: str
    state: Literal["waiting", "running", "done", "failed"]
    progress: JobProgress
    result: ServingDocument | None = None
    problem: dict[str, object] | None = None
