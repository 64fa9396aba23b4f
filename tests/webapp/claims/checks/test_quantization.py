"""C17, C18 and C23: each verdict can come out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from engine.inference.messages import Failed
from engine.refusals import REFUSALS
from tests.webapp.fake_engine import FakeEngine
from webapp.claims.bench import Bench
from webapp.claims.checks.quantization import (
    CALIBRATED,
    PLAIN,
    check_halves,
    check_methods,
    check_sizes,
    size_verdict,
    speed_verdict,
)
from webapp.claims.claim import Verdict
from webapp.i18n import Language, texts


class Judging(FakeEngine):
    """Says how much accuracy each form has lost; what it does not know was never made."""

    def __init__(self, lost: dict[str, float]) -> None:
        super().__init__()
        self.lost = lost

    async def ask(self, request: Any) -> Any:
        name = request.arguments["weights"]
        if name in self.lost:
            self.answers["fidelity"] = {
                "reference_accuracy": 0.4,
                "accuracy": 0.4 - self.lost[name],
                "mean_kl": abs(self.lost[name]) + 0.001,
                "top1_agreement": 0.9,
                "bits_per_weight": 4.5,
                "weight_bytes": 68_000_000,
                "source": "Q4_1",
            }
        else:
            self.answers["fidelity"] = Failed(
                "", "invalid_request", REFUSALS["weights_not_made"], "weights", "weights_not_made"
            )
        return await super().ask(request)


class Simulations:
    """Times by the format of the weights, in s."""

    async def run(self, scenario: Any) -> Any:
        wide = scenario.weights == "fp16"
        return SimpleNamespace(ttft=0.02, itl=0.004 if wide else 0.002)


def bench(engine: FakeEngine) -> Bench:
    nothing: Any = None
    simulations: Any = Simulations()
    return Bench(engine, nothing, simulations, nothing, texts(Language.ENGLISH))


def test_sizes_as_they_are() -> None:
    found = asyncio.run(check_sizes(bench(FakeEngine())))
    assert found.verdict is Verdict.CAVEAT
    assert "6,738,415,616" in found.sentence
    assert "26.95 / 13.48 / 6.74 / 3.37 GB" in found.sentence
    assert "4.21 GB" in found.caveat


@pytest.mark.parametrize(
    ("off", "scales", "verdict"),
    [
        (0.001, 1.0, Verdict.RIGHT),
        (0.001, 1.25, Verdict.CAVEAT),
        (0.04, 1.0, Verdict.CAVEAT),
        (0.2, 1.0, Verdict.WRONG),
    ],
)
def test_size_verdicts(off: float, scales: float, verdict: Verdict) -> None:
    assert size_verdict(off, scales) is verdict


@pytest.mark.parametrize(
    ("lost", "verdict"),
    [
        (dict.fromkeys((*PLAIN, *CALIBRATED), 0.004), Verdict.RIGHT),
        ({PLAIN[0]: 0.1, PLAIN[1]: 0.002}, Verdict.CAVEAT),
        (dict.fromkeys(PLAIN, 0.1), Verdict.CAVEAT),
        (dict.fromkeys((*PLAIN, *CALIBRATED), 0.03), Verdict.CAVEAT),  # chance explains it
        (dict.fromkeys((*PLAIN, *CALIBRATED), 0.1), Verdict.WRONG),
    ],
)
def test_methods(lost: dict[str, float], verdict: Verdict) -> None:
    found = asyncio.run(check_methods(bench(Judging(lost))))
    assert found.verdict is verdict
    assert {evidence.name for evidence in found.evidence} == set(lost)
    assert "Q4_1" in found.caveat
    assert ("never made here" in found.caveat) == (len(lost) < 6)


def test_half_the_bits_are_measured_and_predicted() -> None:
    found = asyncio.run(check_halves(bench(Judging({"int8-channel-rtn": 0.0}))))
    assert "2.00 times as fast in decode and 1.00 times in prefill" in found.caveat
    assert len(found.evidence) == 6


@pytest.mark.parametrize(
    ("faster", "kl", "verdict"),
    [
        (1.9, 0.004, Verdict.RIGHT),
        (1.9, 0.4, Verdict.CAVEAT),
        (1.3, 0.004, Verdict.CAVEAT),
        (1.0, 0.0, Verdict.WRONG),
    ],
)
def test_speed_verdicts(faster: float, kl: float, verdict: Verdict) -> None:
    assert speed_verdict(faster, kl) is verdict
