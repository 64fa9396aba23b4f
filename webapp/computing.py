"""Answers questions beside the event loop: short ones in a thread, long ones in a process.

Both count against the places that simulations have (``SimulationRunner.slot``).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, cast

import anyio.to_thread

from engine.refusals import refused
from webapp.answers import Question, answer
from webapp.child_process import ask_child
from webapp.simulations import SimulationRunner, rebuild_error

TIMEOUT_S = 60.0


class Computer:
    """Runs questions on the places of ``simulations``."""

    def __init__(self, simulations: SimulationRunner) -> None:
        self._simulations = simulations

    async def answer(self, question: Question, *, long: bool) -> bytes:
        """The answer; a ``long`` one is made in a process of its own.

        Raises:
            QueueFull: too many questions are waiting.
            InvalidRequest: it takes too long.
            EngineError: whatever the engine refuses (names the field).
        """
        async with self._simulations.slot():
            if long:
                return await _in_process(question)
            return await anyio.to_thread.run_sync(answer, question)


async def _in_process(question: Question) -> bytes:
    try:
        output = await ask_child(
            "webapp.computing_process", asdict(question), TIMEOUT_S, "computation"
        )
    except TimeoutError:
        raise refused("takes_too_long", seconds=f"{TIMEOUT_S:g}") from None
    head, _, content = output.partition(b"\n")
    error = cast("dict[str, Any] | None", json.loads(head))
    if error is not None:
        raise rebuild_error(error)
    return content
