"""An id that is not there: similar ones are named, and where to find all of them."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from engine.__main__ import app
from engine.catalog.hardware import all_hardware, get_hardware
from engine.catalog.models import all_models, get_model
from engine.errors import UnknownName


@pytest.mark.parametrize(
    ("get", "wanted", "similar"),
    [(get_model, "llama-3-8b", "llama-3.1-8b"), (get_hardware, "H100_SXM5", "h100-sxm")],
)
def test_similar_ids_are_named(get, wanted, similar):
    with pytest.raises(UnknownName) as caught:
        get(wanted)
    assert similar in caught.value.message
    assert wanted not in caught.value.message


def test_nothing_similar_and_nothing_repeated():
    with pytest.raises(UnknownName, match="nothing similar"):
        get_model("<script>" * 10_000)


@pytest.mark.parametrize(("what", "entries"), [("models", all_models), ("hardware", all_hardware)])
def test_inspect_lists_every_id(what, entries):
    result = CliRunner().invoke(app, ["inspect", what])
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.output.splitlines()[1:]]
    assert listed == [entry.id for entry in entries()]
