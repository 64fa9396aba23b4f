"""How fast a service is simulated: ``python -m tests.benchmarks.serving``, on a quiet machine.

Requests of 512 prompt and 256 output tokens to Llama-3.1-8B on an H100, at the rate that keeps 32
of them running on the mean; in stretches and step by step. The process's peak
memory is looked at after 10,000 and after 200,000 shorter requests.
"""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.simulator.deployment import Deployment, Times
from engine.simulator.serving.arrivals import PoissonArrivals
from engine.simulator.serving.lengths import FixedLength
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.simulation import simulate_serving
from engine.simulator.serving.workload import Workload

RESULTS = Path(__file__).with_name("serving.json")
LEAST, AIM = 2_000, 20_000
"""Simulated requests a second on one core."""

# Rates at which 32 requests run on the mean step, found by trying.
_RATES: dict[Times, float] = {"ideal": 21.3, "typical": 12.3}


@dataclass(frozen=True, slots=True)
class Speed:
    """``requests_per_s`` are requests simulated in a second of this machine's time."""

    times: Times
    step_by_step: bool
    requests: int
    mean_batch: float
    requests_per_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that the process held at most until so many requests had passed."""

    requests: int
    peak_bytes: int


def scenario(times: Times, requests: int, output: int = 256) -> ServingScenario:
    """The service that is simulated."""
    return ServingScenario(
        Deployment("llama-3.1-8b", "h100-sxm", times=times),
        Workload(PoissonArrivals(_RATES[times]), FixedLength(512), FixedLength(output), requests),
    )


def measure_speed(times: Times, requests: int, *, step_by_step: bool) -> Speed:
    """Simulate so many requests once, after a few to warm up."""
    simulate_serving(scenario(times, 20), step_by_step=step_by_step)
    start = time.process_time()
    result = simulate_serving(scenario(times, requests), step_by_step=step_by_step)
    seconds = time.process_time() - start
    return Speed(times, step_by_step, requests, result.mean_batch or 0.0, requests / seconds)


def measure_memory(requests: int) -> Memory:
    """The process's peak after so many requests, with short answers so that it takes seconds."""
    simulate_serving(scenario("ideal", requests, output=2))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Memory(requests, peak * (1 if sys.platform == "darwin" else 1024))


def document(speeds: Sequence[Speed], memories: Sequence[Memory]) -> dict[str, object]:
    """Everything that was measured."""
    return {
        "kind": "measured",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "goal": {"least": LEAST, "aim": AIM, "unit": "requests simulated/s, one core"},
        "speed": [asdict(speed) for speed in speeds],
        "memory": [asdict(memory) for memory in memories],
    }


def main() -> None:
    """Measure, print and write ``serving.json``."""
    speeds = [
        measure_speed(times, requests, step_by_step=slow)
        for times in ("ideal", "typical")
        for slow, requests in ((False, 4000), (True, 600))
    ]
    for speed in speeds:
        way = "step by step" if speed.step_by_step else "stretches"
        print(
            f"{speed.times:<8} {way:<13} mean batch {speed.mean_batch:5.1f} "
            f"{speed.requests_per_s:9,.0f} requests/s"
        )
    memories = [measure_memory(requests) for requests in (10_000, 200_000)]
    for memory in memories:
        print(f"{memory.requests:>8,} requests: {memory.peak_bytes / 1e6:.2f} MB at most")
    RESULTS.write_text(json.dumps(document(speeds, memories), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
