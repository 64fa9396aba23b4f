"""Speculative decoding in a simulation: the same loop, priced by the tokens of its steps."""

from __future__ import annotations

from statistics import fmean

import pytest

from engine.catalog.hardware import get_hardware
from engine.catalog.models import get_model
from engine.scheduling.blocks import BlockPool
from engine.scheduling.drafting import InStepDrafter
from engine.scheduling.events import DraftsVerified, Event, StepCompleted, TokenProduced
from engine.scheduling.loop import SchedulingLoop, VirtualClock
from engine.scheduling.plan import SequenceShape
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings
from engine.simulator.roofline_executor import DraftAcceptance, RooflineExecutor
from engine.simulator.step_cost import StepCostModel

HARDWARE = get_hardware("a100-80-sxm")
TARGET = StepCostModel(get_model("llama-2-7b"), HARDWARE)
DRAFTER = StepCostModel(get_model("smollm2-135m"), HARDWARE)
PROMPT = 100


def run(
    tokens: int,
    acceptance: DraftAcceptance | None,
    num_drafts: int = 4,
    draft_cost_model: StepCostModel | None = DRAFTER,
) -> list[Event]:
    events: list[Event] = []
    loop = SchedulingLoop(
        Scheduler(BlockPool(2000), SchedulerLimits(max_context=20_000)),
        RooflineExecutor(TARGET, acceptance=acceptance, draft_cost_model=draft_cost_model),
        VirtualClock(),
        events.append,
        {SpeculationMethod.DRAFT: InStepDrafter()},
    )
    settings = SpeculationSettings(SpeculationMethod.DRAFT, num_drafts)
    loop.add(Request("a", range(PROMPT), tokens, speculation=settings))
    while loop.has_work:
        loop.step()
    return events


def steps(events: list[Event]) -> list[StepCompleted]:
    return [event for event in events if isinstance(event, StepCompleted)]


def test_a_step_costs_what_verifying_and_drafting_cost() -> None:
    events = run(11, DraftAcceptance(1.0))
    prefill, *verifying = steps(events)
    assert prefill.duration == pytest.approx(TARGET.cost([SequenceShape(0, PROMPT, True)]).time)
    assert "draft" not in prefill.stages
    assert len(verifying) == 2
    for number, step in enumerate(verifying):
        prefix = PROMPT + 5 * number
        drafting = sum(DRAFTER.cost([SequenceShape(prefix + i, 1, True)]).time for i in range(4))
        # Five rows go through the LM head, not one.
        shape = SequenceShape(prefix, 5, True, drafts=4)
        assert TARGET.step.measure([shape]).sampled == 5
        assert step.duration == pytest.approx(TARGET.cost([shape]).time + drafting)
        assert step.stages == {"draft": pytest.approx(drafting)}
    assert len([event for event in events if isinstance(event, TokenProduced)]) == 11


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.7, 0.9])
def test_tokens_of_a_step_are_those_of_the_formula(probability: float) -> None:
    """Leviathan et al. 2023 (arXiv 2211.17192), equation 1, within five standard errors."""
    events = run(12_000, DraftAcceptance(probability, seed=1), draft_cost_model=None)
    full = [e for e in events if isinstance(e, DraftsVerified) and len(e.proposed) == 4]
    tokens = [event.num_accepted + 1 for event in full]
    expected = (1 - probability**5) / (1 - probability)
    mean = fmean(tokens)
    variance = fmean((count - mean) ** 2 for count in tokens)
    assert abs(mean - expected) <= 5 * (variance / len(tokens)) ** 0.5


def test_the_same_seed_gives_the_same_run_and_drafts_pay_only_if_they_are_right() -> None:
    def end(probability: float, seed: int = 0) -> float:
        last = steps(run(200, DraftAcceptance(probability, seed)))[-1]
        return last.time + last.duration

    plain = steps(run(200, None, draft_cost_model=None))
    assert end(0.7) == end(0.7) != end(0.7, seed=1)
    assert end(0.9) < end(0.6) < end(0.2)
    # Without acceptance nothing is right, and drafts only cost.
    assert len(plain) == 200
    assert end(0.0) > plain[-1].time + plain[-1].duration > end(0.9)


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="probability"):
        DraftAcceptance(probability)
