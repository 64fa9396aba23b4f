"""``python -m engine quality``: its numbers and its warning."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from engine.commands.quality import FEW_TOKENS, _row
from engine.inference.quantization.quality import Quality
from engine.inference.quantization.report import LaneReport

TINY = ["quality", "--model", "tiny", "--device", "cpu"]


@pytest.mark.parametrize(("tokens", "warned"), [(2, True), (FEW_TOKENS, False)])
def test_so_few_positions_that_they_say_nothing_are_warned_of(tokens: int, warned: bool) -> None:
    arguments = [*TINY, "--weights", "int8", "--tokens", str(tokens)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    said = f"warning: {tokens} tokens are too few to tell formats apart"
    assert (said in result.stderr) is warned
    assert "warning" not in result.stdout


def test_a_refusal_names_the_option() -> None:
    result = CliRunner().invoke(app, [*TINY, "--kv", "heap"])
    assert result.exit_code == 2
    assert "Invalid value for --kv:" in result.stderr


def test_a_divergence_that_rounds_to_nothing_has_no_sign() -> None:
    quality = Quality(10, 2.0, 2.0, mean_kl=-1e-9, p99_kl=-1e-9, top1_agreement=1.0)
    row = _row(LaneReport("float32", "paged", 1, 32.0, 1, quality, (), None))
    assert "0.00000" in row
    assert not [cell for cell in row if cell.startswith("-")]
