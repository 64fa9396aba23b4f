"""Another roofline of the same runs: aiconfigurator 0.12.0 in its speed-of-light mode.

TTFT and TPOT in milliseconds, on one device at 16 bits with 128 generated tokens. Its decode steps
count weights and cache as ours do. Its prefill leaves out the traffic of norms, activations and
sums, so that ours is a little longer.
"""

from __future__ import annotations

import pytest

from engine.simulator.scenario import Scenario, simulate

PEERS = [
    ("llama-2-7b", "a100-80-sxm", 1, 512, 22.707, 6.629),
    ("llama-2-7b", "a100-80-sxm", 1, 2048, 92.909, 7.024),
    ("llama-2-7b", "a100-80-sxm", 16, 512, 361.366, 8.854),
    ("llama-2-7b", "a100-80-sxm", 16, 2048, 1484.608, 15.173),
    ("llama-2-7b", "h100-sxm", 1, 512, 7.589, 4.035),
    ("llama-2-7b", "h100-sxm", 1, 2048, 30.59, 4.275),
    ("llama-2-7b", "h100-sxm", 16, 512, 120.243, 5.389),
    ("llama-2-7b", "h100-sxm", 16, 2048, 488.266, 9.235),
]


@pytest.mark.parametrize(("model", "device", "batch", "prompt", "ttft", "tpot"), PEERS)
def test_times_are_near_those_of_another_roofline(
    model: str, device: str, batch: int, prompt: int, ttft: float, tpot: float
) -> None:
    report = simulate(
        Scenario(model, device, weights="fp16", kv="fp16", batch=batch, prompt_tokens=prompt)
    )
    assert report.itl is not None
    assert report.itl * 1e3 == pytest.approx(tpot, rel=0.015)
    assert 1 <= report.ttft * 1e3 / ttft < 1.07
