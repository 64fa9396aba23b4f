from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from engine.simulator.scenario import Scenario, simulate

RUNNER = CliRunner()
CHOICE = ["simulate", "--model", "llama-3.1-8b", "--hardware", "h100-sxm"]


def test_json_is_the_document_of_the_scenario() -> None:
    options = "--devices 2 --weights fp8 --kv fp8 --batch 4 --prompt-tokens 100 --output-tokens 8"
    result = RUNNER.invoke(app, [*CHOICE, *options.split(), "--json"])
    assert result.exit_code == 0
    expected = simulate(
        Scenario("llama-3.1-8b", "h100-sxm", 2, "fp8", "fp8", 4, 100, 8)
    ).to_document()
    assert json.loads(result.stdout) == json.loads(json.dumps(expected))


def test_the_table_says_that_it_is_predicted() -> None:
    result = RUNNER.invoke(app, CHOICE)
    assert result.exit_code == 0
    assert result.stdout.startswith("predicted: llama-3.1-8b on 1 × H100 SXM5 80GB")
    for words in ("TTFT", "ITL", "16.1 GB / 15.0 GiB", "131,072 B a token", "assumptions"):
        assert words in result.stdout
    for words in ("typical TTFT", "p10 to p90", "on vllm", "most requests", "longest"):
        assert words in result.stdout
    # What is made of typical times says so, below figures of the roofline.
    for words in ("  typical TTFT  ", "  typical TPOT  ", "  typical cost  "):
        assert words in result.stdout


def test_fits_is_said_of_what_may_be_filled_as_the_most_requests_are() -> None:
    options = ["--weights", "bf16", "--memory-utilization", "0.2"]
    output = RUNNER.invoke(app, [*CHOICE, *options]).stdout
    assert re.search(r"fits +no: a device needs .* may fill .* 14.9 GiB, 0.2 of its", output)
    assert re.search(r"most requests +0 with 0.2 filled", output)
    assert "A device may fill" in output
    assert re.search(r"fits +yes: ", RUNNER.invoke(app, CHOICE).stdout)
    document = json.loads(RUNNER.invoke(app, [*CHOICE, *options, "--json"]).stdout)
    assert document["memory"]["fits"]["value"]
    assert "no part kept free" in document["memory"]["fits"]["formula"]
    assert not document["limits"]["fits"]["value"]
    assert "may be filled" in document["limits"]["fits"]["formula"]


def test_one_token_has_a_dash_for_itl() -> None:
    result = RUNNER.invoke(app, [*CHOICE, "--output-tokens", "1"])
    assert "— (one output token)" in result.stdout


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--model", "gpt-5"], "--model"),
        (["--hardware", "b1000"], "--hardware"),
        (["--weights", "int3"], "--weights"),
        (["--kv", "int3"], "--kv"),
        (["--activations", "q4_0"], "--activations"),
        (["--devices", "0"], "--devices"),
        (["--batch", "-1"], "--batch"),
        (["--batch", "many"], "--batch"),
        (["--prompt-tokens", "1e9"], "--prompt-tokens"),
        (["--prompt-tokens", "99999999999999999999"], "--prompt-tokens"),
        (["--batch", "4096", "--output-tokens", "4096"], "--output-tokens"),
        (["--stages", "33"], "--stages"),
        (["--experts", "--data", "2"], "--experts"),
        (["--imbalance", "0.5"], "--imbalance"),
        (["--engine", "abacus"], "--engine"),
        (["--chunk-tokens", "0"], "--chunk-tokens"),
        (["--prefix-hit-rate", "2"], "--prefix-hit-rate"),
        (["--drafts", "4", "--acceptance", "2"], "--acceptance"),
        (["--drafts", "4", "--draft-model", "gpt-5"], "--draft-model"),
        (["--offload-gb-s", "0"], "--offload-gb-s"),
        (["--prefill-devices", "0"], "--prefill-devices"),
        (["--prefill-devices", "1", "--transfer-gb-s", "0"], "--transfer-gb-s"),
        (["--usd-per-hour", "-1"], "--usd-per-hour"),
        (["--memory-utilization", "0"], "--memory-utilization"),
    ],
)
def test_wrong_options_end_with_a_small_error_that_names_them(
    options: list[str], named: str
) -> None:
    result = RUNNER.invoke(app, [*CHOICE, *options, "--json"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert named in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr) < 1500
