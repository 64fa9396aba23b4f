"""``measure`` as it is typed: options, files, exit codes, and the bar."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from engine.commands.measuring_bar import MeasuringBar
from engine.measuring.reply import Failure, Reply
from tests.engine.measuring.fake_server import Script, serving

RUNNER = CliRunner()
FEW = ["--prompt-tokens", "32", "--concurrency", "1,2", "--output-tokens", "4", "--requests", "4"]


def test_a_report_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "a-secret")
    script = Script(before=0.01, gap=0.002)
    paths = [tmp_path / f"report{suffix}" for suffix in (".json", ".html", ".txt")]
    with serving(script) as url:
        result = RUNNER.invoke(
            app,
            ["measure", "--url", url, "--model", "some/llama-3.1-8b", "--hardware", "h100-sxm",
             "--weights", "fp8", "--api-key-env", "MY_KEY", "--json", *FEW,
             *(word for path in paths for word in ("--out", str(path)))],
        )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document == json.loads(paths[0].read_text())
    assert [point["whole_answers"] for point in document["points"]] == [4, 4]
    assert document["comparison"]["cell"]["weights"] == "fp8"
    assert document["comparison"]["diagnosis"]["verdict"]
    assert "32 prompt tokens, 2 at once" in result.stderr
    assert all(sent["Authorization"] == "Bearer a-secret" for sent in script.sent_headers)
    for text in (result.output, *(path.read_text() for path in paths)):
        assert "a-secret" not in text


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([], "name what the server runs on with --hardware"),
        (["--hardware", "h100-sxm"], "the catalogue does not have this model"),
    ],
)
def test_without_knowing_what_runs_there_is_no_comparison(more: list[str], why: str) -> None:
    with serving(Script()) as url:
        result = RUNNER.invoke(app, ["measure", "--url", url, "--model", "mine", *FEW, *more])
    assert result.exit_code == 0, result.stderr
    assert why in result.stdout


def test_a_model_that_is_named_apart() -> None:
    with serving(Script(gap=0.001)) as url:
        result = RUNNER.invoke(
            app,
            ["measure", "--url", url, "--model", "mine", "--spec", "llama-3.1-8b", "--hardware",
             "h200-sxm", *FEW],
        )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "llama-3.1-8b in bf16, KV cache in bf16, on h200-sxm" in result.stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--url", "host:80"], "--url"),
        (["--prompt-tokens", "1,x"], "--prompt-tokens"),
        (["--concurrency", "0"], "--concurrency"),
        (["--hardware", "nothing-like-it"], "--hardware"),
        (["--hardware", "h100-sxm", "--spec", "nothing-like-it"], "--spec"),
        (["--hardware", "h100-sxm", "--spec", "nowhere.json"], "--spec"),
        (["--hardware", "h100-sxm", "--spec", "llama-3.1-8b", "--weights", "x"], "--weights"),
        (["--api-key-env", "FIRSTTOKEN_NO_SUCH_KEY"], "--api-key-env"),
        (["--out", "report.pdf"], "--out"),
        (["--out", "no/such/folder/report.json"], "--out"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_asked(more: list[str], words: str) -> None:
    script = Script()
    with serving(script) as url:
        options = ["--url", url, "--model", "m", *FEW, *more]
        result = RUNNER.invoke(app, ["measure", *options])
    assert result.exit_code == 2, result.output
    assert f"Invalid value for {words}" in " ".join(result.stderr.split())
    assert script.seen == []


def test_a_server_that_refuses_everything() -> None:
    with serving(Script(status=lambda number: 401)) as url:
        result = RUNNER.invoke(app, ["measure", "--url", url, "--model", "m", *FEW])
    assert result.exit_code == 1
    assert "401 as the script says" in result.stderr
    assert "Traceback" not in result.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_fills_and_goes() -> None:
    stream = Terminal()
    with MeasuringBar(2, stream) as bar:
        bar.point(128, 4, 2)
        bar.reply(Reply(0.0, 1.0))
        bar.reply(Reply(0.0, 1.0, failure=Failure.TIMEOUT))
    *_, half, full, gone, end = stream.getvalue().split("\r")
    assert half.startswith(f"[{'█' * 12}{'·' * 12}] 1/2  128 prompt tokens, 4 at once")
    assert full.startswith(f"[{'█' * 24}] 2/2, 1 failed")
    assert (gone.strip(), end) == ("", "")
