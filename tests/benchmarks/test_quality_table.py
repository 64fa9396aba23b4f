"""The quality table: it is made in pieces, and says what it was made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from engine.errors import InvalidRequest
from tests.benchmarks.kv_contexts import COMPARED, WINDOW, summarise
from tests.benchmarks.quality import all_lanes, main
from tests.benchmarks.quality_page import method_notes

pytestmark = pytest.mark.usefixtures("one_thread", "state_dir")


@pytest.fixture
def one_thread():
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
    main([*common, "--only", "int4-g64-(rtn|awq)"])
    main([*common, "--only", "awq", "--speeds"])
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


def test_a_method_that_does_worse_than_rounding_says_by_how_much() -> None:
    lanes = [
        {"weights": f"int4-g64-{method}", "kv": "paged", "quality": {"mean_kl": kl}}
        for method, kl in (("rtn", 0.5), ("awq", 0.75), ("gptq", 0.25))
    ]
    assert method_notes(lanes)[1].splitlines() == [
        "- int4-g64: AWQ 1.50 of it, which is 0.25000 nats worse",
        "- int4-g64: GPTQ 0.50 of it",
    ]


def test_kv_caches_by_context_are_a_section_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--model", "tiny", "--tokens", "1100", "--output", str(tmp_path)]
    main([*common, "--kv"])
    document = json.loads((tmp_path / "quality.json").read_text(encoding="utf-8"))
    assert document["lanes"] == []
    rows = {row["kv"]: row for row in document["kv_contexts"]["rows"]}
    assert list(rows) == [name for names in COMPARED.values() for name in names]
    for int8, int4 in (names for names in COMPARED.values()):
        assert 0 < rows[int8]["mean"] < 0.1 * rows[int4]["mean"]
        assert list(rows[int8]["at"]) == ["256", "1024"]
    assert set(rows["paged-int8"]["edges"]) == {"256", "512", "1024"}
    assert {"1024", "1028"} <= set(rows[f"paged-int8{WINDOW}"]["edges"])
    assert "| paged-int4 | paged |" in (tmp_path / "QUALITY.md").read_text(encoding="utf-8")
    # Lanes that are measured later leave it where it is.
    main([*common, "--only", "int4-tensor-rtn"])
    page = (tmp_path / "QUALITY.md").read_text(encoding="utf-8")
    assert "| paged-int4 | paged |" in page
    assert "| int4-tensor-rtn | paged |" in page


def test_jumps_are_found_where_they_are() -> None:
    smooth = torch.rand(2_048, generator=torch.Generator().manual_seed(1)) + 1
    found = summarise("paged-int8", "paged", smooth)
    assert max(found.block_offset, found.elsewhere, *found.edges.values()) < 1.3
    at_edge = smooth.clone()
    at_edge[1_024:1_056] *= 8  # not a multiple of a block's place: every place has its share
    found = summarise(f"paged-int8{WINDOW}", "paged", at_edge)
    assert max(found.edges, key=found.edges.__getitem__) in (1_024, 1_028)
    assert max(found.edges.values()) > 2
    assert max(found.block_offset, found.elsewhere) < 1.3
    elsewhere = smooth.clone()
    elsewhere[700:740] *= 8
    found = summarise("paged-int8", "paged", elsewhere)
    assert found.elsewhere > 2
    assert max(found.edges.values()) < 1.3
    in_block = smooth.clone()
    in_block[15::16] *= 8
    found = summarise("paged-int8", "paged", in_block)
    assert found.block_offset > 5
    assert max(found.edges.values()) < 1.5


def test_the_numbers_are_those_of_a_plain_sum() -> None:
    divergence_t = torch.linspace(0, 1, 1_100) ** 2
    row = summarise("paged-int4", "paged", divergence_t)
    numbers = divergence_t.tolist()
    assert row.mean == pytest.approx(sum(numbers) / 1_100, rel=1e-4)
    assert row.at == {
        256: pytest.approx(sum(numbers[128:256]) / 128, rel=1e-4),
        1_024: pytest.approx(sum(numbers[896:1_024]) / 128, rel=1e-4),
    }


def test_a_text_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        main(["--model", "tiny", "--tokens", "200", "--kv", "--output", str(tmp_path)])
