"""The benchmark on CUDA: the same tables, beside transformers and this GPU's roofline. Skipped,
with the reason, where torch sees no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.benchmarks.__main__ import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here"),
]


def test_a_lane_is_measured_beside_its_peer_and_its_roofline(tmp_path: Path) -> None:
    options = ["--model", "tiny", "--device", "cuda", "--lane", "bfloat16"]
    main([*options, "--quick", "--repeats", "1", "--output", str(tmp_path)])
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    (lane,) = document["lanes"]
    assert document["device"] == lane["machine"]["device"] == "cuda"
    for result in (*lane["results"], lane["first_token"]):
        assert [name.split()[0] for name in result["peers"]] == ["transformers"]
        assert 0 < result["share_of_roofline"] < 1
    assert all(memory["device_bytes"] > 0 for memory in lane["memory"])
