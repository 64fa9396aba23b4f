"""Help is plain text: what an option takes stands there as it is typed."""

from __future__ import annotations

from typer.testing import CliRunner

from engine.__main__ import app


def test_colons_in_help_are_no_emoji() -> None:
    result = CliRunner().invoke(app, ["serve", "--help"])
    assert result.exit_code == 0
    assert "uniform:100:900 or" in result.stdout
    assert "lognormal:MEAN:CV[:MOST]" in result.stdout
