"""The quality table: it is made in pieces, and says what it was made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.quality import all_lanes, main

pytestmark = pytest.mark.usefixtures("one_thread", "state_dir")


@pytest.fixture
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_scheme_is_in_it() -> None:
    names = [weights.name for weights, _ in all_lanes()]
    for bits in ("int8", "int4"):
        for shared in ("tensor", "channel", "g32", "g64", "g128"):
            for method in ("rtn", "awq", "gptq"):
                assert f"{bits}-{shared}-{method}" in names
    assert {"bfloat16", "file"} <= set(names)


def test_it_is_made_in_pieces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--model", "tiny", "--tokens", "120", "--output", str(tmp_path)]
    main([*common, "--only", "int4-g64-rtn"])
    main([*common, "--only", "int4-g64-(rtn|awq)", "--speeds"])
    said = capsys.readouterr().err
    assert said.count("int4-g64-rtn") == 1
    document = json.loads((tmp_path / "quality.json").read_text(encoding="utf-8"))
    assert [lane["weights"] for lane in document["lanes"]] == ["int4-g64-rtn", "int4-g64-awq"]
    speeds = [lane["decode_tokens_per_s"] for lane in document["lanes"]]
    assert speeds[0] is None
    assert speeds[1] > 0
    page = (tmp_path / "QUALITY.md").read_text(encoding="utf-8")
    assert "| int4-g64-rtn | paged |" in page
    assert "- int4-g64: AWQ" in page
    assert "the file keeps most of them as F32" in page
    # Another text is another table.
    main([*common[:3], "100", *common[4:], "--only", "int4-g64-gptq"])
    document = json.loads((tmp_path / "quality.json").read_text(encoding="utf-8"))
    assert [lane["weights"] for lane in document["lanes"]] == ["int4-g64-gptq"]
