from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from engine.simulator.search.axes import Axis, Sweep
from engine.simulator.search.cell import Cell
from engine.simulator.search.document import sweep_csv, sweep_document
from engine.simulator.search.sweep import run_sweep

RUNNER = CliRunner()
CHOICE = ["sweep", "--model", "llama-3.1-8b", "--hardware", "h100-sxm"]
SWEEP = Sweep(
    Cell("llama-3.1-8b", "h100-sxm", times="typical", kv="fp8"),
    (Axis("batch", (1, 2, 4, 8)), Axis("bandwidth_factor", (0.5, 1.0, 1.5))),
)
OPTIONS = "--set times=typical --set kv=fp8 --over batch=1:8:x2 --over bandwidth-factor=0.5:1.5:0.5"


def test_json_is_the_document() -> None:
    result = RUNNER.invoke(app, [*CHOICE, *OPTIONS.split(), "--format", "json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads(json.dumps(sweep_document(run_sweep(SWEEP))))


def test_csv_is_the_table_for_programs() -> None:
    chosen = ["--metric", "itl", "--metric", "fits", "--format", "csv"]
    result = RUNNER.invoke(app, [*CHOICE, *OPTIONS.split(), *chosen])
    assert result.stdout == "".join(sweep_csv(run_sweep(SWEEP), ["itl", "fits"]))


def test_the_table_says_what_was_predicted() -> None:
    result = RUNNER.invoke(
        app, [*CHOICE, "--over", "prompt-tokens=1,100", "--set", "output-tokens=1"]
    )
    assert result.stdout.startswith("predicted (ideal): llama-3.1-8b on H100 SXM5 80GB")
    for words in ("prompt_tokens", "usd_per_mtok", "16.1 GB / 15.0 GiB", "yes", "—"):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--model", "gpt-5"], "--model"),
        (["--hardware", "b1000"], "--hardware"),
        (["--set", "weights=int3"], "--set"),
        (["--set", "speed=3"], "choose a knob"),
        (["--set", "batch=many"], "batch takes whole numbers"),
        (["--set", "batch=0"], "--set"),
        (["--over", "batch=0,1"], "--over"),
        (["--over", "batch=1:8"], "first:last:step"),
        (["--over", "batch=1:1e9:x2"], "batch takes whole numbers such as 8, written in digits"),
        (["--over", "batch=8:1:x2"], "write the smaller one first"),
        (["--over", "bandwidth-factor=2:nan:x2"], "write the smaller one first"),
        (["--over", "batch=1:8:y"], "x and a factor"),
        (["--over", "batch=1:8:x1"], "grow"),
        (["--over", "batch=0:8:1"], "grow"),
        (["--over", "prompt-tokens=1:1000000:1"], "10,000"),
        (["--over", "kv=bf16:fp8:1"], "first:last:step"),
        (["--over", "batch=1:401:1"], "--format"),
        (["--metric", "speed"], "--metric"),
    ],
)
def test_wrong_options_are_named(options: list[str], named: str) -> None:
    result = RUNNER.invoke(app, [*CHOICE, *options])
    assert result.exit_code == 2
    assert named in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
