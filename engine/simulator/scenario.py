"""The run that answers a question to the simulator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.scheduling.blocks import BlockPool
from engine.scheduling.events import Event, StepCompleted
from engine.scheduling.latency import LatencyRecorder
from engine.scheduling.loop import SchedulingLoop, VirtualClock
from engine.scheduling.plan import SequenceShape
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from engine.simulator.capacity import capacity
from engine.simulator.deployment import Deployment, ideal_model
from engine.simulator.estimates import estimates
from engine.simulator.memory import PagedTokens, memory_needs
from engine.simulator.pipeline import Pipeline, divided
from engine.simulator.question import Scenario
from engine.simulator.report import SimulationReport
from engine.simulator.roofline_executor import RooflineExecutor
from engine.simulator.run import BatchRun, run_batch
from engine.simulator.step_cost import StepCost, StepCostModel
from engine.simulator.step_shape import repeated_shape

__all__ = ["Scenario", "simulate"]


def simulate(scenario: Scenario) -> SimulationReport:
    """Predict the scenario, ideal and typical.

    A plain one runs through the scheduling loop on a virtual clock; with features, stages or
    groups its ideal times are those of the closed form. A model that does not fit the devices
    still gets its times, as if it did.

    Raises:
        UnknownName, InvalidRequest: a model, device or format is unknown (names the field).
        UnsupportedModel: the model has a part that is not simulated (field "model").
        FileFormatError: this machine was chosen and its calibration cannot be read.
    """
    deployment, features = scenario.deployment("ideal"), scenario.features
    ideal = run_batch(deployment, scenario.requests, features)
    typical = run_batch(replace(deployment, times="typical"), scenario.requests, features)
    limits = capacity(deployment, scenario.requests, features)
    cost_model = ideal_model(deployment.cost_model())
    load = limits.load
    times = _loop_times(scenario, cost_model) if scenario.is_plain else _closed_times(ideal)
    return SimulationReport(
        scenario=scenario,
        cost_model=cost_model,
        memory=memory_needs(
            cost_model.step,
            cost_model.hardware,
            PagedTokens(load.sequences, load.tokens),
            load.step_tokens,
        ),
        prefill=times.prefill,
        decode=times.decode,
        ttft=times.ttft,
        itl=times.itl,
        makespan=times.makespan,
        ideal=ideal,
        typical=estimates(typical),
        capacity=limits,
    )


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of the ideal run, and the two steps that a report shows."""

    ttft: float
    itl: float | None
    makespan: float
    prefill: StepCost
    decode: StepCost


def _loop_times(scenario: Scenario, cost_model: StepCostModel) -> _Times:
    run = _run(scenario, cost_model)
    requests = run.latencies.requests.values()
    ttft = run.latencies.mean_ttft()
    end = max((request.token_times[-1] for request in requests), default=None)
    if ttft is None or end is None or run.prefill is None:
        raise AssertionError("the loop ended without a token")
    decode = run.decode or _following_step(scenario, cost_model)
    return _Times(ttft, run.latencies.mean_itl(), end, run.prefill, decode)


def _closed_times(run: BatchRun) -> _Times:
    """Of the steps the largest of the prompts is shown and the middle one of decoding.

    In stages it is what one microbatch does.
    """
    prompts, output = run.prompts, run.batch.output_tokens
    new, together = prompts.new, prompts.sequences
    if prompts.chunk is not None:
        together = max(min(prompts.chunk // new, together), 1)
        new = min(new, prompts.chunk)
    drafts = 0 if run.features.speculation is None else run.features.speculation.drafts
    context = prompts.tokens + max(output // 2, 1) - 1
    return _Times(
        run.ttft,
        run.tpot,
        run.e2e,
        _shown(run.prefill_deployment, together, SequenceShape(prompts.cached, new, True)),
        _shown(
            run.deployment,
            prompts.sequences,
            SequenceShape(context, 1 + drafts, True, drafts),
        ),
    )


def _shown(deployment: Deployment, sequences: int, shape: SequenceShape) -> StepCost:
    model = ideal_model(deployment.cost_model())
    parts = Pipeline(deployment.layout.stages, model.model.num_layers).microbatches(sequences)
    return model.cost_of(divided(repeated_shape(model.step, [(sequences, shape)]), parts))


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
