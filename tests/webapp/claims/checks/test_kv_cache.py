"""C13, C14, C22: every verdict can come out, and the numbers are the closed forms."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.inference.messages import Accepted, Step, Token
from tests.webapp.fake_engine import FakeEngine
from webapp.claims.bench import Bench, Run
from webapp.claims.checks.kv_cache import (
    CONTEXTS,
    TOKENS,
    check_c13,
    check_c14,
    check_c22,
    judge_c13,
    judge_c14,
    judge_c22,
    passes_at,
)
from webapp.claims.claim import Verdict
from webapp.i18n import Language, texts
from webapp.pages.kv_view import largest_batches

SAID = texts(Language.ENGLISH)


def run_of(times: list[float]) -> Run:
    accepted = Accepted("r", "m", "cpu", "float32", "float32", (1, 2, 3), ("a", "b", "c"), 9, 0, 0)
    run = Run(accepted=accepted)
    for index, time in enumerate(times):
        shape = (0, 3, True, 0)
        run.steps.append(
            Step("r", index, "decode", "decode", 1, 1, 0, (shape,), 0, time, {}, 3, 1, 1, 9, 1, 0)
        )
        run.tokens.append(Token("r", index, index, "x", "x", None, None, 0, 0))
    return run


def test_where_the_factor_is_passed_for_good() -> None:
    assert passes_at([1, 2, 3, 4], [1, 11, 12, 40], 5) == 4
    assert passes_at([1, 2], [5, 10], 5) == 1
    assert passes_at([1, 2], [1, 2], 5) is None


@pytest.mark.parametrize(
    ("slow", "verdict", "words"),
    [
        ([float(n) for n in range(1, 41)], Verdict.CAVEAT, "from 9 tokens on"),
        ([1 + n / 20 for n in range(40)], Verdict.CAVEAT, "but it grows"),
        ([1.0] * 40, Verdict.WRONG, "did not grow"),
    ],
)
def test_c13(slow: list[float], verdict: Verdict, words: str) -> None:
    finding = judge_c13(run_of([1.0] * 40), run_of(slow), SAID)
    assert finding.verdict is verdict
    assert words in finding.sentence
    told = {item.name: item.value for item in finding.evidence}
    assert told["same token in the same place, in float32"] == "40 / 40"
    # A prompt of 3: 3 + 39 positions with the cache, the sum of 3 … 42 without.
    assert told["positions computed, with and without"] == f"42 / {sum(range(3, 43))}"


@pytest.mark.parametrize(
    ("per_token", "verdict"),
    [(1e6, Verdict.RIGHT), (819_200, Verdict.CAVEAT), (131_072, Verdict.WRONG)],
)
def test_c14(per_token: float, verdict: Verdict) -> None:
    assert judge_c14(per_token, 4000 * per_token, SAID).verdict is verdict


def test_c14_of_llama() -> None:
    finding = judge_c14(819_200, 819_200 * 4096, SAID)
    assert [item.value for item in finding.evidence] == ["819,200 B", "3.4 GB / 3.1 GiB"]
    assert "131,072 B" in finding.caveat


@pytest.mark.parametrize(
    ("other", "plain", "verdict"),
    [
        ((30, 28, 22), (54, 27, 13), Verdict.CAVEAT),
        ((40, 20, 10), (54, 27, 13), Verdict.RIGHT),
        ((40, 20, 10), (54, 40, 30), Verdict.WRONG),
    ],
)
def test_c22(other: tuple[int, ...], plain: tuple[int, ...], verdict: Verdict) -> None:
    assert judge_c22({"plain": plain, "other": other}, SAID).verdict is verdict


def test_the_largest_batch_is_what_the_bytes_leave_room_for() -> None:
    batches = largest_batches("llama-2-13b", "h100-sxm", "bf16", CONTEXTS)
    for context, batch in zip(CONTEXTS, batches, strict=True):
        # 80 GB, 90% of it usable; 13.0e9 parameters of 2 bytes; what is left over is activations.
        room = 72e9 - 2 * 13_015_864_320 - batch * context * 819_200
        assert 0 < room < context * 819_200 + 2e9


def test_they_ask_the_engine_and_the_catalogue() -> None:
    engine = FakeEngine()
    nothing: Any = None
    bench = Bench(engine, nothing, nothing, nothing, SAID)
    assert asyncio.run(check_c13(bench)).verdict is Verdict.WRONG, "each step takes as long here"
    asked = [(r.kv_cache, r.weights, r.max_tokens, r.ignore_eos) for r in engine.requests]
    assert asked == [(kv, "float32", TOKENS, True) for kv in ("paged", "off")]
    for check in (check_c14, check_c22):
        assert asyncio.run(check(bench)).verdict is Verdict.CAVEAT
