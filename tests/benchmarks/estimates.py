"""``python -m tests.benchmarks.estimates``: how fast predictions are, one at a time and many.

Three numbers: one estimate in process (median), estimates a second over HTTP (a real server in a
process of its own, a client that keeps several requests under way), and sweeps of 100,000 cells.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from engine.catalog.hardware import published_hardware
from engine.simulator.search.axes import Axis, Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import estimate
from engine.simulator.search.sweep import run_sweep

BASE = Cell("llama-3.1-8b", "h100-sxm", times="typical")
MODELS = ("llama-3.1-8b", "deepseek-v3", "qwen3-next-80b-a3b")
GOALS = {"estimate_ms": 1.0, "rest_per_s": 800.0, "sweep_s": 2.0}
_HEADERS = "content-type: application/json\r\naccept-encoding: identity\r\n"


def estimate_ms(repeats: int = 400) -> float:
    """Median milliseconds of one estimate, of runs that are all different."""
    times: list[float] = []
    for index in range(repeats):
        cell = replace(BASE, batch=1 + index % 64, prompt_tokens=100 + index)
        began = time.perf_counter()
        estimate(cell)
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def sweep_seconds() -> dict[str, float]:
    """Seconds of sweeps of at least 100,000 cells, by what they turn; the best of three."""
    devices = tuple(spec.id for spec in published_hardware())
    factors = tuple(0.1 + index / 100 for index in range(317))
    axes = {
        "batch × prompt": (
            Axis("batch", tuple(range(1, 317))),
            Axis("prompt_tokens", tuple(range(1, 31_701, 100))),
        ),
        "hardware × batch": (Axis("hardware", devices), Axis("batch", tuple(range(1, 1410)))),
        "bandwidth × FLOP/s": (Axis("bandwidth_factor", factors), Axis("flops_factor", factors)),
    }
    found: dict[str, float] = {}
    for model in MODELS:
        for times in ("ideal", "typical"):
            for name, turned in axes.items():
                sweep = Sweep(replace(BASE, model=model, devices=8, times=times), turned)
                if sweep.cells < 100_000:
                    raise AssertionError("a sweep of this bench has 100,000 cells")
                runs: list[float] = []
                for _ in range(3):
                    began = time.perf_counter()
                    run_sweep(sweep)
                    runs.append(time.perf_counter() - began)
                found[f"{model}, {times}: {name}"] = min(runs)
    return found


@contextmanager
def _server() -> Iterator[int]:
    """The port of a server in a process of its own, with the tiny model."""
    environment = {**os.environ, "FIRSTTOKEN_MODEL": "tiny", "FIRSTTOKEN_CALIBRATE": "never"}
    command = [sys.executable, "-m", "webapp", "--port", "0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            if process.stdout is None:
                raise AssertionError("the output is piped")
            yield int(process.stdout.readline().rstrip("/\n").rsplit(":", 1)[1])
        finally:
            process.terminate()
            process.wait(15)


def rest_per_s(seconds: float, connections: int = 8) -> float:
    """Estimates/s over HTTP, one a request, with so many requests under way."""
    with _server() as port:
        asyncio.run(_ask_for(port, 1.0, connections))
        return asyncio.run(_ask_for(port, seconds, connections))


async def _ask_for(port: int, seconds: float, connections: int) -> float:
    began = time.perf_counter()
    until = began + seconds
    counts = await asyncio.gather(*(_ask(port, until, n) for n in range(connections)))
    return sum(counts) / (time.perf_counter() - began)


async def _ask(port: int, until: float, number: int) -> int:
    """One connection that asks again as soon as it is answered: a client as light as can be."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    while time.perf_counter() < until:
        cell = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "times": "typical"}
        body = json.dumps({**cell, "batch": 1 + number, "prompt_tokens": 100 + count % 4000})
        head = f"POST /api/v1/estimate HTTP/1.1\r\nhost: localhost\r\n{_HEADERS}"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if " 200 " not in answer.split("\r\n", 1)[0]:
            raise AssertionError(answer)
        await reader.readexactly(int(answer.split("content-length:", 1)[1].split("\r\n", 1)[0]))
        count += 1
    writer.close()
    await writer.wait_closed()
    return count


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.estimates")
    parser.add_argument("--seconds", type=float, default=5.0, help="of asking over HTTP")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "estimates.json")
    options = parser.parse_args(arguments)
    sweeps = sweep_seconds()
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "estimate_ms": estimate_ms(),
        "rest_per_s": rest_per_s(options.seconds),
        "sweep_s": max(sweeps.values()),
        "sweeps_s": sweeps,
        "goals": GOALS,
    }
    text = json.dumps(found, indent=2)
    options.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
