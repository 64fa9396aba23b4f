"""The profile of a step: stages and what lies between them are the whole of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import step_profile
from tests.benchmarks.engines import Lane


def test_stages_and_what_lies_between_are_the_step() -> None:
    (alone, several) = step_profile.profile(Lane("tiny", "cpu", "float32"), (1, 4), 1, 6)
    assert (alone.batch, several.batch) == (1, 4)
    for item in (alone, several):
        assert {"layers", "logits"} <= set(item.stages)
        assert sum(item.stages.values()) + item.between == pytest.approx(item.step)
        # Medians of stages may add up to a little more than the mean step, never to much more.
        assert item.between > -0.5 * item.step
        assert item.weights > 0
        assert item.roofline > 0


def test_the_page_has_a_line_for_each_batch(tmp_path: Path) -> None:
    output = tmp_path / "PROFILE.md"
    step_profile.main(
        ["--model", "tiny", "--device", "cpu", "--lane", "float32", "--repeats", "1",
         "--steps", "4", "--output", str(output)]
    )  # fmt: skip
    text = output.read_text("utf-8")
    assert text.count("| float32 |") == len(step_profile.BATCHES)
    assert "between" in text
