from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from engine.simulator.search.cheapest import Requirement, cheapest
from engine.simulator.search.confirming import confirm
from engine.simulator.search.search_document import search_document

RUNNER = CliRunner()
CHOICE = ["search", "--model", "llama-3.1-8b", "--rate", "2", "--ttft", "0.5", "--itl", "0.03"]
DEVICES = ["--hardware", "h100-sxm", "--hardware", "l4", "--devices", "1", "--weights", "fp8"]
NEED = Requirement(
    "llama-3.1-8b", 2.0, 512, 128, 0.5, 0.03,
    hardware=("h100-sxm", "l4"), devices=(1,), weights=("fp8",),
)  # fmt: skip


def test_json_is_the_document_with_the_finalist_confirmed() -> None:
    result = RUNNER.invoke(app, [*CHOICE, *DEVICES, "--json"])
    assert result.exit_code == 0
    found = cheapest(NEED)
    expected = search_document(found, [confirm(NEED, found.best[0])])
    assert json.loads(result.stdout) == json.loads(json.dumps(expected))


def test_a_run_confirms_the_closed_form() -> None:
    """Far from its limits, a service's means are close to those of the closed form."""
    best = cheapest(NEED).best[0]
    run = confirm(NEED, best)
    assert best.ttft is not None
    assert best.itl is not None
    assert run.keeps
    assert run.ttft == pytest.approx(best.ttft, rel=0.35)
    assert run.itl == pytest.approx(best.itl, rel=0.15)
    assert run.good_share > 0.9


def test_people_read_prices_and_why_others_miss() -> None:
    tight = ["search", "--model", "llama-3.1-8b", "--rate", "2", "--ttft", "0.5", "--itl", "0.012"]
    result = RUNNER.invoke(app, [*tight, *DEVICES, "--finalists", "0"])
    assert result.stdout.startswith("predicted: 1 deployments keep the limits, 1 not")
    for words in ("US$/h", "batch up to", "1 × l4, weights fp8, KV bf16: ITL: a request alone"):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("options", "named"),
    [(["--model", "gpt-5"], "--model"), (["--hardware", "b1000"], "--hardware")],
)
def test_wrong_options_are_named(options: list[str], named: str) -> None:
    result = RUNNER.invoke(app, [*CHOICE, *options])
    assert result.exit_code == 2
    assert named in result.stderr
