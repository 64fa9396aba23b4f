"""``python -m engine serve``, as people call it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from engine.__main__ import app

BASE = ["serve", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--requests", "20"]


def run(*options):
    return CliRunner().invoke(app, [*BASE, *options])


def test_a_table_for_people():
    ran = run("--rate", "5", "--slo-ttft", "1")
    assert ran.exit_code == 0, ran.output
    for word in ("TTFT", "ITL", "TPOT", "E2E", "queueing", "p99", "goodput", "Little's law"):
        assert word in ran.stdout


def test_a_trace_and_clients(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,5\n1,200,6\n", encoding="utf-8")
    document = json.loads(run("--trace", str(path), "--json").stdout)
    assert document["requests"]["finished"]["value"] == 2
    assert document["checks"]["littles_law"]["holds"] is True
    repeated = json.loads(run("--trace", str(path), "--clients", "3", "--json").stdout)
    assert repeated["requests"]["finished"]["value"] == 20
    assert repeated["scenario"]["workload"]["arrivals"]["clients"] == 3


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ([], "--rate"),
        (["--rate", "1", "--clients", "2"], "--clients"),
        (["--rate", "0"], "--rate"),
        (["--rate", "1", "--prompt", "many"], "--prompt"),
        (["--rate", "1", "--output", "uniform:9:3"], "--output"),
        (["--rate", "1", "--prefixes", "3"], "--prefixes"),
        (["--rate", "1", "--policy", "whim"], "--policy"),
        (["--rate", "1", "--times", "best"], "--times"),
        (["--trace", "no-such-file.csv"], "--trace"),
    ],
)
def test_what_is_wrong_is_named_as_the_option_that_was_typed(options, option):
    ran = run(*options)
    assert ran.exit_code == 2
    assert option in ran.output
