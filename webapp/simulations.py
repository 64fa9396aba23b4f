"""Runs simulations beside the event loop, a few at a time."""

from __future__ import annotations

import anyio.to_thread
from anyio import CapacityLimiter

from engine.errors import QueueFull
from engine.simulator.report import SimulationReport
from engine.simulator.scenario import Scenario, simulate
from webapp.settings import Settings


class SimulationRunner:
    """At most ``simulation_threads`` run and ``simulation_queue`` wait; more are refused."""

    def __init__(self, settings: Settings) -> None:
        self._threads = settings.simulation_threads
        self._max_pending = settings.simulation_threads + settings.simulation_queue
        self._limiter: CapacityLimiter | None = None
        self._pending = 0

    async def run(self, scenario: Scenario) -> SimulationReport:
        """The report of one scenario.

        Raises:
            QueueFull: too many simulations are waiting.
            EngineError: whatever ``simulate`` refuses.
        """
        if self._pending >= self._max_pending:
            raise QueueFull("too many simulations are waiting; try again in a moment")
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._threads)  # belongs to the running loop
        self._pending += 1
        try:
            return await anyio.to_thread.run_sync(simulate, scenario, limiter=self._limiter)
        finally:
            self._pending -= 1
