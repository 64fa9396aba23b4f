"""Asks a Python module in a process of its own, and ends that if it takes too long."""

from __future__ import annotations

import asyncio
import json
import sys

from engine.errors import StepFailed


async def ask_child(module: str, question: object, timeout_s: float, what: str) -> bytes:
    """What ``python -m module`` writes when it reads ``question`` as JSON.

    The process does not outlive the call, whichever way that ends. ``what`` names its work.

    Raises:
        TimeoutError: it takes longer than ``timeout_s`` seconds.
        StepFailed: it ended with an error.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate(json.dumps(question).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise StepFailed(f"the {what} failed; the failure was logged")
    return output
