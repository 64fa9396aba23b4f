"""C08's verdict, from numbers that are made up: each branch happens."""

from __future__ import annotations

import base64
import math

import numpy as np
import pytest

from webapp.claims.checks.attention import Redone, judge, redo
from webapp.claims.claim import Verdict

EXACT, OFF = Redone(0.0, 0.0), Redone(0.2, 0.3)


def detail(scale: float, *, tokens: int = 5, size: int = 8) -> dict:
    """What the probe tells of a query in the middle, computed with numpy."""
    rng = np.random.default_rng(3)
    q, keys, values = (
        rng.normal(size=shape) for shape in ((size,), (tokens, size), (tokens, size))
    )
    visible = [position < tokens - 1 for position in range(tokens)]
    scores = np.where(visible, keys @ q * scale, -np.inf)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()

    def pack(array: np.ndarray) -> dict:
        data = base64.b64encode(array.astype("<f4").tobytes()).decode("ascii")
        return {"shape": list(array.shape), "dtype": "float32", "data": data}

    return {
        "q_rotated": q.tolist(),
        "keys_rotated": pack(keys),
        "values": pack(values),
        "visible": visible,
        "weights": weights.tolist(),
        "mixed": (weights @ values).tolist(),
    }


def test_redoing_gives_the_same_numbers_with_the_same_scale_only() -> None:
    told = detail(1 / math.sqrt(8))
    same = redo(told, 1 / math.sqrt(8))
    assert max(same.weights, same.mixed) < 1e-6
    other = redo(told, 1 / math.sqrt(64))
    assert other.weights > 0.02
    assert other.mixed > 0.02


@pytest.mark.parametrize(
    ("ours", "theirs", "one_head", "verdict"),
    [
        (EXACT, OFF, False, Verdict.CAVEAT),
        (EXACT, EXACT, False, Verdict.CAVEAT),
        (EXACT, EXACT, True, Verdict.RIGHT),
        (OFF, OFF, False, Verdict.WRONG),
    ],
)
def test_the_verdict(ours: Redone, theirs: Redone, one_head: bool, verdict: Verdict) -> None:
    assert judge(ours, theirs, one_head=one_head) is verdict
