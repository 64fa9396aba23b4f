"""``python -m engine probe`` on the tiny model."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from tests.engine.inference.probes.probes_for_tests import probe_model

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPT = "the capital of France is"
BASE = ["probe", "--model", "tiny", "--prompt", PROMPT]


def _run(*more: str) -> str:
    result = CliRunner().invoke(app, [*BASE, *more])
    assert result.exit_code == 0, result.output
    return result.output


def test_json_holds_the_documents() -> None:
    answer = json.loads(
        _run("--json", "--layer", "1", "--head", "3", "--ablate", "no-mask", "--ablate", "layer:0")
    )
    assert answer["random_weights"] is True
    assert "".join(token["piece"] for token in answer["tokens"]) == PROMPT
    detail = answer["attention_detail"]
    assert (detail["layer"], detail["head"]) == (1, 3)
    assert detail["query"] == len(answer["tokens"]) - 1
    assert sum(detail["weights"]) == pytest.approx(1, abs=1e-4)
    assert answer["comparison"]["ablations"] == ["no-mask", "layer:0"]
    assert len(answer["comparison"]["as_it_is"]["tokens"]) == 8
    said = [token["id"] for token in answer["next_token"]["top"]]
    assert [token["id"] for token in answer["logit_lens"]["rows"][-1]["top"]] == said
    assert json.loads(_run("--json"))["comparison"] is None


def test_people_read_what_was_measured() -> None:
    text = _run("--position", "2", "--ablate", "head:0.1", "--max-tokens", "3")
    assert text.startswith("measured on tiny-random (random weights: its answers are noise)")
    assert "ablation head:0.1: KL " in text
    assert "token 2 " in text
    weights = [float(share) for share in re.findall(r"^ +([\d.]+)%  +\d", text, re.MULTILINE)]
    assert weights == sorted(weights, reverse=True)
    # Only so many are shown of five, and the third token sees three.
    assert sum(weights) == pytest.approx(100, abs=0.1)
    assert "embedding " in text
    assert text.count("goes on: ") == 2
    assert probe_model().config.num_layers == text.count("\n  layer ")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--layer", "2"], "--layer"),
        (["--head", "4"], "--head"),
        (["--position", "99"], "--position"),
        (["--top", "0"], "--top"),
        (["--ablate", "everything"], "--ablate"),
        (["--ablate", "no-mask", "--max-tokens", "33"], "--max-tokens"),
        (["--model", "/nowhere"], "--model"),
    ],
)
def test_what_is_wrong_is_refused_by_option(options: list[str], named: str) -> None:
    result = CliRunner().invoke(app, [*BASE, *options], env={"NO_COLOR": "1", "COLUMNS": "200"})
    assert result.exit_code == 2
    assert named in result.output
