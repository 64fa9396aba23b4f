"""The document of an import, and the command that prints it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from engine.catalog.importing.imported import import_model
from engine.catalog.importing.report import import_document
from tests.engine.catalog.importing.released import RELEASED, released

RUNNER = CliRunner()


@pytest.mark.parametrize("model_id", sorted(RELEASED))
def test_parts_add_up_and_the_document_is_json(model_id: str) -> None:
    found = import_model(released(model_id))
    document: dict[str, Any] = import_document(found)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    parts = dict(document["parameters"])
    total, active = parts.pop("total"), parts.pop("active")
    assert total == sum(parts.values()) == found.spec.num_parameters
    assert active == found.spec.num_streamed_parameters
    weights = document["weights"]
    assert weights["bytes"] * 8 / total == pytest.approx(weights["average_bits"])


def test_understood_ignored_and_default_keys_make_up_the_file() -> None:
    config = released("qwen3-30b-a3b")
    document: dict[str, Any] = import_document(import_model(config))
    told = set(document["understood"]) | set(document["ignored"])
    silent = {
        key for key, value in config.items() if value is None or value is False or value == []
    }
    assert {f"config.{key}" for key in config.keys() - silent} <= told
    assert told <= {f"config.{key}" for key in config}
    assert not told & document["defaults"].keys()


def test_assumptions_tell_the_average_and_what_is_not_counted() -> None:
    document: dict[str, Any] = import_document(import_model(released("deepseek-v4-flash")))
    text = " ".join(document["assumptions"])
    for words in ("fp8-b128", "experts in mxfp4", "average bits", "further tokens"):
        assert words in text
    assert document["weights"]["simulate_as"] == {
        "weights": "mixed-4.378",
        "activations": "fp8",
        "kv": "bf16",
    }


def test_the_command_prints_the_same_document(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(released("gpt-oss-20b")), encoding="utf-8")
    result = RUNNER.invoke(app, ["import", str(path), "--name", "mine", "--json"])
    assert result.exit_code == 0
    expected = import_document(import_model(released("gpt-oss-20b"), "mine"))
    assert json.loads(result.stdout) == expected
    shown = RUNNER.invoke(app, ["import", str(path)])
    assert shown.exit_code == 0
    for words in ("imported-gpt_oss", "20,914,757,184", "49,152 B a token", "mixed-5.264"):
        assert words in shown.stdout


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"not json", "config"),
        (b"{}", "model_type"),
        (json.dumps(released("llama-3.1-8b", moe_every=2)).encode(), "moe_every"),
        (b'{"a": "' + b"x" * 2**21 + b'"}', "bytes"),
    ],
)
def test_files_that_are_refused_end_with_a_small_error(
    tmp_path: Path, content: bytes, named: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    result = RUNNER.invoke(app, ["import", str(path), "--json"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert named in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr) < 1500
