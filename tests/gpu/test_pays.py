"""What pays, on CUDA: the same script makes the same sections there. Skipped, with the reason,
where torch sees no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.benchmarks.pays.__main__ import main
from tests.benchmarks.pays.report import PARTS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here"),
]


def test_every_part_runs_on_cuda(tmp_path: Path) -> None:
    main(["--quick", "--model", "tiny", "--device", "cuda", "--output", str(tmp_path)])
    sections = json.loads((tmp_path / "pays.json").read_text(encoding="utf-8"))
    assert list(sections) == list(PARTS)
    for section in sections.values():
        assert section["conditions"]["device"] == "cuda"
        assert section["verdicts"]
    exact = sections["cache"]["data"]
    assert exact["float32_parted_at"] == []
    for window in sections["batching"]["data"]["users"]:
        assert 0 < window["tokens_per_second"] < window["roofline_tokens_per_second"]
