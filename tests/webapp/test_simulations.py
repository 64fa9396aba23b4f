"""Simulations beside the event loop: short ones in a thread, long ones in a process."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from engine.errors import InvalidRequest, QueueFull, UnknownName
from engine.simulator.scenario import Scenario, simulate
from webapp import simulations
from webapp.settings import Settings
from webapp.simulations import THREAD_TOKENS, SimulationRunner

pytestmark = pytest.mark.anyio

SHORT = Scenario("smollm2-135m", "h100-sxm", output_tokens=8)
LONG = Scenario("smollm2-135m", "h100-sxm", batch=512, output_tokens=THREAD_TOKENS // 512 + 1)
# Eight requests of one token each, whose prompts alone take a second.
WIDE = Scenario("smollm2-135m", "h100-sxm", batch=8, prompt_tokens=2_000_000, output_tokens=1)


@pytest.fixture
def runner() -> SimulationRunner:
    return SimulationRunner(Settings())


@pytest.mark.parametrize("scenario", [SHORT, LONG, WIDE], ids=["short", "long", "wide"])
async def test_same_document_wherever_it_runs(runner: SimulationRunner, scenario: Scenario) -> None:
    assert await runner.document(scenario) == simulate(scenario).to_document()


async def test_reports_are_for_short_runs(runner: SimulationRunner) -> None:
    assert (await runner.run(SHORT)).ttft == simulate(SHORT).ttft
    for scenario, field in ((LONG, "output_tokens"), (WIDE, "prompt_tokens")):
        with pytest.raises(InvalidRequest) as refused:
            await runner.run(scenario)
        assert refused.value.field == field


async def test_long_runs_leave_the_interpreter_of_this_process_alone(
    runner: SimulationRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(simulations, "simulate")
    for scenario in (LONG, WIDE):
        assert await runner.document(scenario)


@pytest.mark.parametrize(
    ("changes", "field", "kind"),
    [
        ({"model": "no-such-model"}, "model", UnknownName),
        ({"activations": "q4_0"}, "activations", InvalidRequest),
    ],
)
@pytest.mark.parametrize("output_tokens", [4, THREAD_TOKENS + 1])
async def test_errors_come_back_as_what_they_were(
    runner: SimulationRunner,
    changes: dict[str, str],
    field: str,
    kind: type[Exception],
    output_tokens: int,
) -> None:
    scenario = replace(SHORT, output_tokens=output_tokens, **changes)
    with pytest.raises(kind) as refused:
        await runner.document(scenario)
    assert type(refused.value) is kind
    assert refused.value.field == field  # pyright: ignore


async def test_a_run_that_takes_too_long_is_killed(
    runner: SimulationRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulations, "TIMEOUT_S", 0.05)
    with pytest.raises(InvalidRequest, match="takes more than"):
        await runner.document(LONG)
    monkeypatch.undo()
    assert await runner.document(SHORT)


async def test_too_many_are_refused_and_the_others_finish() -> None:
    runner = SimulationRunner(Settings(simulation_threads=1, simulation_queue=3))
    results = await asyncio.gather(
        *(runner.document(SHORT) for _ in range(10)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, QueueFull)]
    assert len(refused) == 6
    assert await runner.document(SHORT)
