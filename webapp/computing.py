"""Answers questions beside the event loop: short ones in a thread, long ones in a process.

Both count against the places that simulations have (``SimulationRunner.slot``).
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Any, cast

import anyio.to_thread

from engine.errors import InvalidRequest, StepFailed
from webapp.answers import Question, answer
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
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "webapp.computing_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, _ = await process.communicate(json.dumps(asdict(question)).encode())
    except TimeoutError:
        raise InvalidRequest(f"this takes more than {TIMEOUT_S:g} s; ask for less") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise StepFailed("the computation failed; the failure was logged")
    head, _, content = output.partition(b"\n")
    error = cast("dict[str, Any] | None", json.loads(head))
    if error is not None:
        raise rebuild_error(error)
    return content
