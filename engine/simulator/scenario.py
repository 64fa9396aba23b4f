"""A question to the simulator, and the run that answers it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.errors import InvalidRequest
from engine.scheduling.blocks import BlockPool
from engine.scheduling.events import Event, StepCompleted
from engine.scheduling.latency import LatencyRecorder
from engine.scheduling.loop import SchedulingLoop, VirtualClock
from engine.scheduling.plan import SequenceShape
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from engine.simulator.layout import MAX_DEVICES, Layout
from engine.simulator.memory import PagedTokens, memory_needs
from engine.simulator.report import SimulationReport
from engine.simulator.roofline_executor import RooflineExecutor
from engine.simulator.step_cost import StepCost, StepCostModel


@dataclass(frozen=True, slots=True)
class Scenario:
    """``batch`` equal requests that arrive together, on ``devices`` equal devices.

    ``model`` and ``hardware`` are ids of the catalogue; ``weights``, ``kv`` and ``activations``
    names of number formats (activations: None follows the weights).

    Raises:
        InvalidRequest: a number is out of its range, or the run would take too long to simulate.
    """

    model: str
    hardware: str
    devices: int = 1
    weights: str = "bf16"
    kv: str = "bf16"
    batch: int = 1
    prompt_tokens: int = 512
    output_tokens: int = 128
    activations: str | None = None

    RANGES: ClassVar[dict[str, tuple[int, int]]] = {
        "devices": (1, MAX_DEVICES),
        "batch": (1, 4096),
        "prompt_tokens": (1, 2_000_000),
        "output_tokens": (1, 131_072),
    }
    # The loop is run for real, one sequence and step after the other: two seconds at most.
    MAX_SAMPLED_TOKENS: ClassVar[int] = 2**18
    MAX_CACHED_TOKENS: ClassVar[int] = 2**24

    def __post_init__(self) -> None:
        for name, (low, high) in self.RANGES.items():
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise InvalidRequest(f"choose a whole number from {low:,} to {high:,}", field=name)
        for name in ("model", "hardware", "weights", "kv", "activations"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (name == "activations" and value is None):
                raise InvalidRequest("give a name as text", field=name)
        if self.batch * self.output_tokens > self.MAX_SAMPLED_TOKENS:
            raise InvalidRequest(
                f"batch times output tokens may be {self.MAX_SAMPLED_TOKENS:,} at most, as every "
                "token is simulated; choose fewer of either",
                field="output_tokens",
            )
        if self.batch * (self.prompt_tokens + self.output_tokens) > self.MAX_CACHED_TOKENS:
            raise InvalidRequest(
                f"batch times prompt and output tokens may be {self.MAX_CACHED_TOKENS:,} at most; "
                "choose fewer of either",
                field="prompt_tokens",
            )

    @property
    def cached_tokens(self) -> int:
        """Positions that each request holds at its end: the last token is never fed back."""
        return self.prompt_tokens + self.output_tokens - 1

    @property
    def decode_steps(self) -> int:
        """Steps after the one that runs the prompts."""
        return self.output_tokens - 1

    @property
    def shown_decode_step(self) -> int:
        """The decode step that a report shows: the middle one, whose context is the mean.

        With one output token no decode step runs: the one that would follow is shown.
        """
        return max(self.output_tokens // 2, 1)


def simulate(scenario: Scenario) -> SimulationReport:
    """Run the scenario through the scheduling loop on a virtual clock.

    A model that does not fit the devices still gets its times, as if it did.

    Raises:
        UnknownName, InvalidRequest: a model, device or format is unknown (names the field).
        UnsupportedModel: the model has a part that is not simulated (field "model").
        FileFormatError: this machine was chosen and its calibration cannot be read.
    """
    model = get_model(scenario.model)
    hardware = get_hardware(scenario.hardware)
    cost_model = StepCostModel(
        model,
        hardware,
        weights=scenario.weights,
        kv=scenario.kv,
        activations=scenario.activations,
        layout=Layout(tensor=scenario.devices),
    )
    run = _run(scenario, cost_model)
    requests = run.latencies.requests.values()
    ttft = run.latencies.mean_ttft()
    end = max((request.token_times[-1] for request in requests), default=None)
    if ttft is None or end is None or run.prefill is None:
        raise AssertionError("the loop ended without a token")
    paged = PagedTokens(scenario.batch, scenario.cached_tokens)
    return SimulationReport(
        scenario=scenario,
        cost_model=cost_model,
        memory=memory_needs(
            cost_model.step, hardware, paged, scenario.batch * scenario.prompt_tokens
        ),
        prefill=run.prefill,
        decode=run.decode or _following_step(scenario, cost_model),
        ttft=ttft,
        itl=run.latencies.mean_itl(),
        makespan=end,
    )


@dataclass(slots=True)
class _Run:
    """What the loop's events told: latencies, and the costs of the two steps that are shown."""

    scenario: Scenario
    cost_model: StepCostModel
    latencies: LatencyRecorder = field(default_factory=LatencyRecorder)
    prefill: StepCost | None = None
    decode: StepCost | None = None

    def hear(self, event: Event) -> None:
        self.latencies.record(event)
        if not isinstance(event, StepCompleted):
            return
        if event.step == 1:
            self.prefill = self._cost(event)
        elif event.step == 1 + self.scenario.shown_decode_step:
            self.decode = self._cost(event)

    def _cost(self, event: StepCompleted) -> StepCost:
        return self.cost_model.cost([sequence.shape for sequence in event.sequences])


def _run(scenario: Scenario, cost_model: StepCostModel) -> _Run:
    """All prompts in one step, then all requests decode together: nothing waits or is preempted."""
    batch = scenario.batch
    paged = PagedTokens(batch, scenario.cached_tokens)
    limits = SchedulerLimits(
        max_running=batch,
        max_waiting=batch,
        max_step_tokens=batch * scenario.prompt_tokens,
        max_context=scenario.prompt_tokens + scenario.output_tokens,
    )
    run = _Run(scenario, cost_model)
    scheduler = Scheduler(BlockPool(batch * paged.blocks, paged.block_size), limits)
    loop = SchedulingLoop(scheduler, RooflineExecutor(cost_model), VirtualClock(), run.hear)
    prompt = range(scenario.prompt_tokens)
    for index in range(batch):
        loop.add(Request(str(index), prompt, scenario.output_tokens))
    while loop.has_work:
        loop.step()
    return run


def _following_step(scenario: Scenario, cost_model: StepCostModel) -> StepCost:
    """The decode step that would come after a single output token."""
    shape = SequenceShape(scenario.prompt_tokens, 1, samples=True)
    return cost_model.cost([shape] * scenario.batch)
