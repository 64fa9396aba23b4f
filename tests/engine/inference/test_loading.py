"""From options to a model that runs: what loading passes on, and what it survives."""

from __future__ import annotations

import pytest
import torch

from engine.inference import loading
from engine.inference.loading import load_model
from engine.inference.options import EngineOptions

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = EngineOptions(model="tiny", device="cpu", dtypes="float32", kv_tokens=128)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error"),
        OSError("read-only file system"),
    ],
    ids=repr,
)
def test_an_engine_that_cannot_measure_runs_all_the_same(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(device: str) -> None:
        raise error

    monkeypatch.setattr(loading, "ensure_calibrated", fail)
    loaded = load_model(TINY)
    assert loaded.executors.keys() == {"float32"}
    assert "nothing is predicted" in caplog.text
    assert str(error) in caplog.text
