"""Runs simulations beside the event loop, a few at a time.

Short ones run in a thread. A long one would compete with the event loop for the interpreter and
delay every stream, so it runs in a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import Any, cast

import anyio.to_thread

from engine.errors import EngineError, InvalidRequest, QueueFull
from engine.refusals import refused
from engine.simulator.report import SimulationReport
from engine.simulator.scenario import Scenario, simulate
from webapp.child_process import ask_child
from webapp.settings import Settings
from webapp.waiting import Line

THREAD_TOKENS = 2**13
"""Output tokens of all requests up to which a run is short: some tenths of a second."""
THREAD_CACHED_TOKENS = 2**20
"""Prompt and output tokens of all requests up to which a run is short, however few are output."""
SHORT_EFFORT_S = 0.15
"""Seconds that simulating a service may take, about, in a thread beside the event loop."""
TIMEOUT_S = 60.0

Document = dict[str, object]


class SimulationRunner:
    """At most ``simulation_threads`` run and ``simulation_queue`` wait; more are refused."""

    def __init__(self, settings: Settings) -> None:
        threads = settings.simulation_threads
        self._line = Line(threads, threads + settings.simulation_queue, _full)

    async def run(self, scenario: Scenario) -> SimulationReport:
        """The report of one short scenario.

        Raises:
            QueueFull: too many simulations are waiting.
            InvalidRequest: the scenario is too long for this way (names the field).
            EngineError: whatever ``simulate`` refuses.
        """
        if _has_long_output(scenario):
            raise InvalidRequest(
                f"batch times output tokens may be {THREAD_TOKENS:,} here; choose fewer",
                field="output_tokens",
            )
        if _has_long_context(scenario):
            raise InvalidRequest(
                f"batch times prompt and output tokens may be {THREAD_CACHED_TOKENS:,} here; "
                "choose fewer",
                field="prompt_tokens",
            )
        async with self.slot():
            return await anyio.to_thread.run_sync(simulate, scenario)

    async def document(self, scenario: Scenario) -> Document:
        """The document of any scenario.

        Raises:
            QueueFull: too many simulations are waiting.
            InvalidRequest: it takes too long (field "output_tokens").
            EngineError: whatever ``simulate`` refuses.
        """
        if not _has_long_output(scenario) and not _has_long_context(scenario):
            return (await self.run(scenario)).to_document()
        async with self.slot():
            return await _in_process(scenario)

    def slot(self) -> AbstractAsyncContextManager[None]:
        """A place among those that run; waits for one.

        Raises:
            QueueFull: too many are waiting.
        """
        return self._line.place()


def _full() -> EngineError:
    return refused("simulations_at_once", kind=QueueFull)


def _has_long_output(scenario: Scenario) -> bool:
    return scenario.batch * scenario.output_tokens > THREAD_TOKENS


def _has_long_context(scenario: Scenario) -> bool:
    tokens = scenario.batch * (scenario.prompt_tokens + scenario.output_tokens)
    return tokens > THREAD_CACHED_TOKENS


async def _in_process(scenario: Scenario) -> Document:
    try:
        output = await ask_child(
            "webapp.simulation_process", asdict(scenario), TIMEOUT_S, "simulation"
        )
    except TimeoutError:
        seconds = f"{TIMEOUT_S:g}"
        raise refused("simulation_too_long", field="output_tokens", seconds=seconds) from None
    answer = cast("dict[str, Any]", json.loads(output))
    if "error" in answer:
        raise rebuild_error(answer["error"])
    return answer["document"]


def rebuild_error(error: dict[str, Any]) -> EngineError:
    """The error that was raised in the other process."""
    kinds = {kind.code: kind for kind in _kinds(EngineError)}
    kind = kinds.get(error["code"], EngineError)
    return kind(
        error["message"],
        field=error["field"],
        reason=error.get("reason"),
        values=error.get("values"),
    )


def _kinds(kind: type[EngineError]) -> Iterator[type[EngineError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)
