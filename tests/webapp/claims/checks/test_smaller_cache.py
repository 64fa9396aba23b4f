"""C15 and C16: each verdict can come out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.webapp.fake_engine import FakeEngine
from webapp.claims.bench import Bench
from webapp.claims.checks.smaller_cache import (
    CACHES,
    HELD_OUT,
    check_deepseek,
    check_fixes,
    ratio_verdict,
)
from webapp.claims.claim import Verdict
from webapp.i18n import Language, texts


class Judging(FakeEngine):
    """Says of every cache how large it is and how far off."""

    def __init__(self, sizes: dict[str, int], kl: float) -> None:
        super().__init__()
        self.sizes = sizes
        self.kl = kl

    async def ask(self, request: Any) -> Any:
        cache = request.arguments["kv_cache"]
        assert request.arguments == {
            "weights": "float32",
            "kv_cache": cache,
            "held_out": HELD_OUT,
        }
        size = next((s for n, s in self.sizes.items() if cache.endswith(n)), 100)
        self.answers["fidelity"] = {
            "kv_bytes_per_token": size,
            "mean_kl": 0.0 if cache == "paged" else self.kl,
            "top1_agreement": 0.98,
            "source": "Q4_1",
        }
        return await super().ask(request)


def bench(engine: FakeEngine) -> Bench:
    nothing: Any = None
    return Bench(engine, nothing, nothing, nothing, texts(Language.ENGLISH))


@pytest.mark.parametrize(
    ("sizes", "kl", "verdict"),
    [
        ({"int8": 26, "int4": 14}, 0.001, Verdict.RIGHT),
        ({"int8": 26, "int4": 14}, 0.3, Verdict.CAVEAT),
        ({"int8": 100, "int4": 100}, 0.0, Verdict.WRONG),
    ],
)
def test_fixes(sizes: dict[str, int], kl: float, verdict: Verdict) -> None:
    found = asyncio.run(check_fixes(bench(Judging(sizes, kl))))
    assert found.verdict is verdict
    assert [evidence.name for evidence in found.evidence] == list(CACHES)
    assert "Paging makes no token smaller" in found.caveat
    assert "Q4_1" in found.caveat


def test_deepseek_as_it_is() -> None:
    found = asyncio.run(check_deepseek(bench(FakeEngine())))
    assert found.verdict is Verdict.RIGHT
    assert "10.5%" in found.sentence
    assert "27.2%" in found.sentence
    assert "10,041" in found.caveat


def test_ratios_that_are_near_or_far() -> None:
    assert ratio_verdict(0.105, 0.272) is Verdict.RIGHT
    assert ratio_verdict(0.12, 0.27) is Verdict.CAVEAT
    assert ratio_verdict(0.10, 0.40) is Verdict.WRONG
