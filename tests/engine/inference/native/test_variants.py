"""The native step over every KV format, and in models that have more to a layer than a Llama."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.inference.kv_cache.make import make_cache
from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.lane_settings import KVFormat, KVSettings, parse_kv
from engine.inference.model.load import load_transformer
from engine.inference.model.transformer import Transformer
from engine.inference.weights.checkpoint import Checkpoint, StoredTensor
from engine.inference.weights.ggml_types import F32
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.families_for_tests import write_family
from tests.engine.inference.native.steps import decoder, step
from tests.engine.inference.runs_for_tests import (
    CPU,
    logits,
    random_ids,
    sequence,
    tiny,
    tiny_reference,
)

QUANTISED = ["paged-int8", "paged-int4", "paged-int8-window-40-sinks-4"]


def _cache(settings: KVSettings, transformer: Transformer, block_size: int = 16) -> PagedKVCache:
    made = make_cache(
        transformer.config,
        settings,
        num_blocks=512 // block_size,
        dtype=transformer.dtype,
        device=CPU,
        block_size=block_size,
    )
    assert isinstance(made, PagedKVCache)
    return made


def _levels(kv_cache: PagedKVCache, slots: range) -> torch.Tensor:
    """Bytes of these slots in all layers."""
    planes = [layer[0] for layer in kv_cache.store.planes]
    return torch.stack(planes)[:, :, :, slots.start : slots.stop]


@pytest.mark.parametrize("name", QUANTISED)
@torch.inference_mode()
def test_quantised_caches_equal_torch(name: str) -> None:
    """Read what torch wrote, then write as torch writes."""
    ids = random_ids(410, seed=3)
    ours, theirs = (_cache(parse_kv(name), tiny()) for _ in range(2))
    native = decoder(tiny(), ours)
    table = range(3, 30)
    for kv_cache in (ours, theirs):
        logits(tiny(), kv_cache, sequence(ids[:300], table=table))
    for start, stop in ((300, 301), (301, 312), (312, 330), (330, 410)):
        part = sequence(ids[start:stop], start=start, table=table)
        actual, expected = step(native, part)["a"], logits(tiny(), theirs, part)["a"]
        # A number on the edge between two levels may fall to either side.
        assert (actual - expected).abs().max() < 0.05
    written = range(3 * 16 + 300, 3 * 16 + 410)
    same = _levels(ours, written) == _levels(theirs, written)
    assert same.float().mean() > 0.999
    first = range(3 * 16 + 300, 3 * 16 + 301)
    for layer in range(2):
        scales = [kv.store.planes[layer][1][:, :, first.start].float() for kv in (ours, theirs)]
        torch.testing.assert_close(*scales, rtol=2.0**-10, atol=0)


@pytest.mark.parametrize("number", [0.0, 1e-9, 6e4, float("nan"), float("inf")])
@pytest.mark.parametrize("stored", [KVFormat.INT8, KVFormat.INT4])
@torch.inference_mode()
def test_extreme_numbers_are_stored_as_torch_stores_them(number: float, stored: KVFormat) -> None:
    transformer = load_transformer(_tiny_with_values(number), torch.float32, CPU)
    ours, theirs = (_cache(KVSettings(format=stored), transformer) for _ in range(2))
    part = sequence([5], table=[0])
    step(decoder(transformer, ours), part)
    logits(transformer, theirs, part)
    layer = 0  # what comes after it is made of what it gave
    scales = [kv.store.planes[layer][1][1, :, 0].float() for kv in (ours, theirs)]
    assert torch.equal(scales[0].isfinite(), scales[1].isfinite())
    if scales[0].isfinite().all():
        torch.testing.assert_close(*scales, rtol=2.0**-10, atol=0)
        assert torch.equal(_levels(ours, range(1))[0, 1], _levels(theirs, range(1))[0, 1])


def _tiny_with_values(number: float) -> Checkpoint:
    """A tiny model whose first values are all that number, or its negative."""
    checkpoint = tiny_random_checkpoint()
    shape = checkpoint.config.tensor_shapes()["layers.0.v"]
    weights = np.zeros(shape, np.float32)
    # Token 5's normed vector, times which the row gives the number.
    embed = checkpoint.tensor("embed")[5]
    root = np.sqrt((embed**2).mean() + checkpoint.config.norm_eps)
    normed = embed / root * checkpoint.tensor("layers.0.attn_norm")
    first = int(np.abs(normed).argmax())
    weights[:, first] = number / normed[first]
    weights[::2] *= -1
    stored = StoredTensor(F32, shape, weights.view(np.uint8).reshape(-1))
    return replace(checkpoint, tensors={**checkpoint.tensors, "layers.0.v": stored})


@pytest.mark.parametrize("name", ["contiguous", "contiguous-int8"])
@torch.inference_mode()
def test_a_slab_for_every_sequence(name: str) -> None:
    ids = random_ids(140, seed=4)
    kv_cache = _cache(parse_kv(name), tiny(), block_size=256)
    native = decoder(tiny(), kv_cache)
    for start, stop in ((0, 90), (90, 91), (91, 140)):
        actual = step(native, sequence(ids[start:stop], start=start, table=[1]))["a"]
    expected = tiny_reference().logits(ids)[-1]
    assert (actual - expected).abs().max() < (1e-4 if name == "contiguous" else 0.3)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen2", {}),
        ("qwen2-window", {}),
        ("mistral", {"intermediate_size": 96}),
        ("qwen3", {"head_dim": 16}),
        ("qwen3", {"head_dim": 48, "num_key_value_heads": 1}),
        ("qwen3", {"head_dim": 128}),
    ],
)
def test_layers_with_more_to_them_equal_transformers(
    family: str, changes: dict[str, object], tmp_path: Path
) -> None:
    written = write_family(family, tmp_path, **changes)
    transformer = load_transformer(written.checkpoint, torch.float32, CPU)
    ids = random_ids(120, seed=6)
    expected = written.logits(ids)
    native = decoder(transformer, _cache(KVSettings(), transformer))
    for start, stop in ((0, 40), (40, 41), (41, 57), (57, 120)):
        actual = step(native, sequence(ids[start:stop], start=start, table=range(9, 17)))["a"]
        torch.testing.assert_close(actual, expected[stop - 1], atol=1e-4, rtol=1e-4)
