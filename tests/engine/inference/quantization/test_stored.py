"""Quantised weights on disk: the same again, and nothing stale or damaged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from engine.inference.lane_settings import parse_weights
from engine.inference.quantization import stored
from engine.inference.quantization.quantize import QuantizedWeights, quantize
from engine.inference.quantization.stored import quantize_once
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.quantization.test_packed import same

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the settings that were really quantised."""
    names: list[str] = []

    def counted(checkpoint, settings, progress) -> QuantizedWeights:
        names.append(settings.name)
        return quantize(checkpoint, settings, progress, calibration_tokens=256)

    monkeypatch.setattr(stored, "quantize", counted)
    return names


def files(state_dir: Path) -> list[Path]:
    return sorted((state_dir / "quantized").glob("*"))


@pytest.mark.parametrize("name", ["int4-g32-awq", "int8-channel-gptq"])
def test_the_second_time_it_is_read(name: str, state_dir: Path, made: list[str]) -> None:
    settings = parse_weights(name)
    first = quantize_once(tiny_random_checkpoint(), settings)
    second = quantize_once(tiny_random_checkpoint(), settings)
    assert made == [name]
    assert len(files(state_dir)) == 1
    assert first.matrices.keys() == second.matrices.keys()
    for matrix, again in zip(first.matrices.values(), second.matrices.values(), strict=True):
        assert same(matrix, again)
    for tensor in ("layers.0.attn_norm", "layers.1.mlp_norm", "final_norm", "embed"):
        one, other = first.checkpoint.tensor(tensor), second.checkpoint.tensor(tensor)
        assert torch.equal(torch.from_numpy(one), torch.from_numpy(other))


def test_another_model_or_method_is_another_file(state_dir: Path, made: list[str]) -> None:
    quantize_once(tiny_random_checkpoint(0), parse_weights("int4-awq"))
    quantize_once(tiny_random_checkpoint(1), parse_weights("int4-awq"))
    quantize_once(tiny_random_checkpoint(0), parse_weights("int4-gptq"))
    assert len(made) == len(files(state_dir)) == 3


def test_rounding_to_nearest_is_not_kept(state_dir: Path, made: list[str]) -> None:
    quantize_once(tiny_random_checkpoint(), parse_weights("int4"))
    assert not files(state_dir)


@pytest.mark.parametrize("damage", ["cut", "other", "empty"])
def test_a_damaged_file_is_made_again(
    damage: str, state_dir: Path, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = parse_weights("int4-awq")
    quantize_once(tiny_random_checkpoint(), settings)
    (path,) = files(state_dir)
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "other": b"x" * 99, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        again = quantize_once(tiny_random_checkpoint(), settings)
    assert "made again" in caplog.text
    assert len(made) == 2
    assert again.matrices
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_failure(
    state_dir: Path, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (state_dir / "quantized").write_text("a file where a folder should be")
    with caplog.at_level(logging.WARNING):
        weights = quantize_once(tiny_random_checkpoint(), parse_weights("int4-awq"))
    assert weights.matrices
    assert "not kept" in caplog.text
