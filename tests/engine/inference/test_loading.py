"""From options to a model that runs: what loading passes on, and what it survives."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models

from engine.inference import loading
from engine.inference.loading import load_model
from engine.inference.options import EngineOptions
from engine.inference.sampling import SamplingParams
from engine.inference.tokenizer import Tokenizer, TokenizerSettings
from engine.inference.weights.checkpoint import Checkpoint, StoredTensor
from engine.inference.weights.default import ModelSource
from engine.inference.weights.ggml_types import F32
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.runs_for_tests import alone, random_ids

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


HOLE, UNUSED, FIRST_PADDING = 9, 40, 100


def _checkpoint_that_wants_unknown_ids() -> Checkpoint:
    """A model that scores three ids highest that no text has: a hole in the tokenizer's ids, an
    entry that the file calls unused, and a row above the last id."""
    checkpoint = tiny_random_checkpoint()
    config = checkpoint.config
    head = checkpoint.tensor("lm_head")
    loud = np.abs(head).sum(axis=0)
    embed = checkpoint.tensor("embed") * 0 + 1  # every token's row: all ones
    norm = np.ones(config.hidden_size, np.float32)
    head[[HOLE, UNUSED, FIRST_PADDING]] = loud
    stored = {"embed": embed, "final_norm": norm, "lm_head": head}
    for layer in range(config.num_layers):
        for part in ("o", "down"):  # layers add nothing, so that the stream stays all ones
            name = f"layers.{layer}.{part}"
            stored[name] = checkpoint.tensor(name) * 0
    tensors = {
        name: StoredTensor(F32, values.shape, np.ascontiguousarray(values).view(np.uint8).ravel())
        for name, values in stored.items()
    }

    def tokenizer() -> Tokenizer:
        entries = {f"<{token}>": token for token in range(FIRST_PADDING) if token != HOLE}
        backend = tokenizers.Tokenizer(models.BPE(entries, []))
        return Tokenizer(backend, TokenizerSettings(unused_ids=frozenset({UNUSED})))

    return dataclasses.replace(
        checkpoint, tensors={**checkpoint.tensors, **tensors}, build_tokenizer=tokenizer
    )


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(1.0, seed=3)])
def test_ids_that_no_text_has_are_never_produced(
    params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = _checkpoint_that_wants_unknown_ids()
    monkeypatch.setattr(ModelSource, "open", lambda self: checkpoint)
    loaded = load_model(dataclasses.replace(TINY, calibrate="never"))
    produced = alone(loaded.executors["float32"], [1, 2, 3], 50, params)
    assert len(produced) == 50
    assert not set(produced) & set(loaded.tokenizer.unknown_ids(512))


@pytest.mark.parametrize(("kv_tokens", "positions"), [(100, 112), (100_000, 2_048)])
def test_positions_are_prepared_as_far_as_the_cache_and_the_context_go(
    kv_tokens: int, positions: int
) -> None:
    options = dataclasses.replace(TINY, kv_tokens=kv_tokens, calibrate="never")
    executor = load_model(options).executors["float32"]
    assert executor._transformer.max_positions == positions
    in_cache = executor.num_blocks * executor.block_size
    text = alone(executor, random_ids(90, seed=1), min(in_cache, 130) - 90)
    assert len(text) == min(in_cache, 130) - 90
