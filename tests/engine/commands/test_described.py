"""Models and devices from files, as the simulator's commands take them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from engine.simulator.scenario import Scenario
from engine.simulator.scenario import simulate as run_scenario

RUNNER = CliRunner()
CONFIG: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32_000,
    "max_position_embeddings": 2048,
}
DEVICE: dict[str, object] = {
    "name": "My GPU",
    "memory_gb": 80,
    "bandwidth_gb_s": 3350,
    "dense_tflops": {"bf16": 989.4},
}
COMMANDS = [
    ["simulate"],
    ["serve", "--rate", "5", "--requests", "10"],
    ["sweep", "--over", "batch=1,2"],
    ["diagnose", "--ttft", "1"],
]
IDS = [command[0] for command in COMMANDS]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "device.json").write_text(json.dumps(DEVICE))
    return tmp_path


def test_files_say_what_objects_say_in_a_request(files: Path) -> None:
    chosen = ["--model", str(files / "config.json"), "--hardware", str(files / "device.json")]
    result = RUNNER.invoke(app, ["simulate", *chosen, "--json"])
    assert result.exit_code == 0
    report = run_scenario(Scenario({"config": CONFIG}, {"custom": DEVICE}))
    assert json.loads(result.stdout) == json.loads(json.dumps(report.to_document()))


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_every_command_takes_files(command: list[str], files: Path) -> None:
    chosen = ["--model", str(files / "config.json"), "--hardware", str(files / "device.json")]
    result = RUNNER.invoke(app, [*command, *chosen])
    assert result.exit_code == 0, result.stderr
    assert command[0] == "diagnose" or "imported-llama on" in result.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no readable file"),
        ("[]", "JSON object"),
        ("{", "is not JSON"),
        ('{"model_type": "foo"}', "model.config.model_type"),
        (json.dumps({**CONFIG, "moe_every": 2}), "model.config.moe_every"),
    ],
    ids=["missing", "list", "cut", "type", "key"],
)
def test_a_wrong_model_file_is_refused(
    command: list[str], content: str | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.json"
    if content is not None:
        path.write_text(content)
    result = RUNNER.invoke(app, [*command, "--model", str(path), "--hardware", "h100-sxm"])
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "Invalid value for --model:" in said
    assert words in said


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_a_wrong_device_file_is_refused(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(json.dumps({**DEVICE, "memory_gb": 0}))
    result = RUNNER.invoke(app, [*command, "--model", "llama-3.1-8b", "--hardware", str(path)])
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "Invalid value for --hardware:" in said
    assert "hardware.custom.memory_gb" in said
