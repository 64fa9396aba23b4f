from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from engine.simulator.diagnosis.diagnose import diagnose
from engine.simulator.diagnosis.document import diagnosis_document, read_observations

RUNNER = CliRunner()
CHOICE = ["diagnose", "--model", "llama-3.1-8b", "--hardware", "h100-sxm"]


def test_json_is_the_document() -> None:
    settings = ["--set", "batch=8", "--set", "prompt-tokens=2000"]
    options = [*settings, "--ttft", "1.5", "--itl", "0.02", "--queue", "1.2"]
    result = RUNNER.invoke(app, [*CHOICE, *options, "--json"])
    assert result.exit_code == 0
    body = {
        "cell": {
            "model": "llama-3.1-8b", "hardware": "h100-sxm", "batch": 8, "prompt_tokens": 2000
        },
        "observations": [{"ttft": 1.5, "itl": 0.02, "queue": 1.2}],
    }  # fmt: skip
    expected = diagnosis_document(diagnose(read_observations(body)))
    assert json.loads(result.stdout) == json.loads(json.dumps(expected))


def test_people_read_the_verdict_first() -> None:
    result = RUNNER.invoke(app, [*CHOICE, "--ttft", "2.0", "--itl", "0.0069", "--queue", "1.9"])
    assert result.stdout.startswith("slow to start")
    for words in ("queueing", "without the cause", "typical 6.86 ms", "assumed"):
        assert words in result.stdout


def test_what_is_assumed_and_what_is_saved_is_said() -> None:
    times = ["--ttft", "2.0", "--itl", "0.0069"]
    output = RUNNER.invoke(app, [*CHOICE, *times]).stdout
    assert "of 512 prompt and 128 output tokens, 1 at once; assumed" in output
    assert "--set: prompt-tokens, output-tokens, batch" in output
    assert "of the whole answer" in output
    settings = ["--set", "output-tokens=30", "--set", "prompt-tokens=90", "--set", "batch=2"]
    output = RUNNER.invoke(app, [*CHOICE, *times[:2], *settings]).stdout
    assert "of 90 prompt and 30 output tokens, 2 at once\n" in output
    assert "of the time to the first token" in output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "first token"),
        (["--ttft", "0"], "above 0"),
        (["--ttft", "nan"], "above 0"),
        (["--ttft", "1", "--model", "gpt-5"], "--model"),
        (["--ttft", "1", "--set", "batch=0"], "--set"),
        (["--itl", "1", "--set", "output-tokens=1"], "no gap"),
    ],
)
def test_wrong_options_are_named(options: list[str], named: str) -> None:
    result = RUNNER.invoke(app, [*CHOICE, *options])
    assert result.exit_code == 2
    assert named in " ".join(result.stderr.replace("│", " ").split())
