"""``python -m engine generate`` on the tiny model: what is told, and which option is refused."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner, Result

from engine.__main__ import app
from engine.commands import generate as generate_module
from engine.commands import progress
from engine.commands.generate import _gaps
from engine.inference.messages import Done
from engine.inference.request_limits import MAX_SAMPLES, MAX_STOP_CHARS, MAX_TEMPERATURE
from webapp.schemas.live_requests import GenerateRequest

REPEATS = "one two three four one two three four one two three four"
GENERATE = ("generate", "--model", "tiny", "--device", "cpu", "--dtype", "float32")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(
        app, [*GENERATE, "--prompt", REPEATS, "--max-tokens", "40", *arguments]
    )


def told(result: Result) -> str:
    """Standard error without its frame and line ends."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.stderr).split())


def test_the_usual_and_the_mean_gap_are_told() -> None:
    result = run("--max-tokens", "5")
    assert result.exit_code == 0, result.stderr
    assert re.search(
        r"TTFT \d+\.\d ms · ITL \d+\.\d ms \(median\) · TPOT \d+\.\d ms \(mean of 4\)",
        result.stdout,
    )


def test_with_drafts_only_the_mean_is_told() -> None:
    done = Done("a", "length", 3, 6, 10.0, (0.0, 0.0, 0.0, 0.0, 12.0), "", "", 0, 5, 4)
    assert _gaps(done) == "TPOT 2.4 ms (mean of 5)"
    result = run("--speculation", "ngram")
    assert "drafts accepted" in result.stdout
    assert "ITL" not in result.stdout


def test_likeliest_tokens_are_told_to_people_and_to_programs() -> None:
    arguments = ("--max-tokens", "3", "--top-logprobs", "2")
    document = json.loads(run(*arguments, "--json").stdout)
    shown = run(*arguments).stdout
    lines = [line for line in shown.splitlines() if "likeliest:" in line]
    assert len(lines) == 3
    for line, logprob, top in zip(
        lines, document["logprobs"], document["top_logprobs"], strict=True
    ):
        wanted = [logprob, *(one["logprob"] for one in top)]
        assert re.findall(r"-?\d+\.\d{3}\b", line) == [f"{value:z.3f}" for value in wanted]
    assert "likeliest:" not in run("--max-tokens", "3").stdout


@pytest.mark.parametrize(
    ("arguments", "option", "said"),
    [
        (("--draft-tokens", "3"), "--draft-tokens", "needs --speculation"),
        (("--exit-layer", "1"), "--exit-layer", "needs --speculation"),
        (("--speculation", "ngram", "--exit-layer", "1"), "--exit-layer", "early-exit only"),
        (("--speculation", "early-exit", "--exit-layer", "2"), "--exit-layer", "2 layers"),
        (
            ("--speculation", "ngram", "--draft-tokens", "17"),
            "--draft-tokens",
            "--draft-tokens must be a whole number from 1 to 16",
        ),
        (("--speculation", "draft"), "--speculation", "choose off"),
        (("--dtype", "int3"), "--dtype", "choose float32"),
        (("--weights", "int8"), "--dtype", "give one"),
        (("--kv-cache", "heap"), "--kv-cache", "choose paged"),
        (("--n", "9"), "--n", "--n must be a whole number from 1 to 8"),
        (("--temperature", "5.5"), "--temperature", "a number from 0 to 5"),
        (("--top-p", "2"), "--top-p", "--top-p must be a number from 0 to 1"),
        (("--top-k", "1001"), "--top-k", "a whole number from 0 to 1000"),
        (("--stop", "x" * 65), "--stop", "1 to 64 characters"),
        (("--max-tokens", "8193"), "--max-tokens", "from 1 to 8192"),
        (("--max-tokens", "8000"), "--max-tokens", "exceed the context"),
        (("--logit-bias", "1"), "--logit-bias", "ID=NUMBER"),
    ],
)
def test_a_refusal_names_the_option_that_was_typed(
    arguments: tuple[str, ...], option: str, said: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert f"Invalid value for {option}: " in told(result)
    assert said in told(result)


def test_weights_by_their_own_name_are_refused_by_it() -> None:
    arguments = ["generate", "--model", "tiny", "--prompt", "a", "--weights", "int3"]
    assert "Invalid value for --weights:" in told(CliRunner().invoke(app, arguments))


def test_limits_are_those_of_the_websocket() -> None:
    fields = GenerateRequest.model_json_schema()["properties"]
    assert fields["n"]["maximum"] == MAX_SAMPLES
    assert fields["temperature"]["maximum"] == MAX_TEMPERATURE
    assert fields["stop"]["items"]["maxLength"] == MAX_STOP_CHARS


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_progress_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, method: str
) -> None:
    monkeypatch.setenv("FIRSTTOKEN_STATE", str(tmp_path))
    monkeypatch.setattr(progress, "TELL_EVERY", 0.0)
    arguments = ["generate", "--model", "tiny", "--device", "cpu", "--prompt", "a", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--weights", f"int4-{method}"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["lane"] == f"int4-g32-{method}"
    lines = result.stderr.splitlines()
    assert lines[0] == "quantizing: 0% done, at layers.0"
    assert "quantizing: 47% done, at layers.1" in lines
    assert lines[-1].endswith("at lm_head")


def test_what_is_quick_says_nothing() -> None:
    assert generate_module.stderr_report is progress.stderr_report
    assert run("--max-tokens", "2").stderr == ""
