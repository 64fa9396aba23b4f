"""The fast forward pass against transformers, the plain reference path, and itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.model.config import ModelConfig
from engine.inference.model.linear import PackedLinear, PlainLinear, make_linear
from engine.inference.model.load import load_transformer
from engine.inference.model.norm import RMSNorm
from engine.inference.model.reference import ReferenceModel
from engine.inference.model.rope import RotaryTable, halves_to_pairs, rotate_
from engine.inference.model.rope_frequencies import Rope
from engine.inference.weights.checkpoint import Checkpoint, StoredTensor
from engine.inference.weights.ggml_types import F32
from tests.engine.inference.llama_for_tests import llama_config, llama_name
from tests.engine.inference.runs_for_tests import (
    CPU,
    logits,
    new_cache,
    random_ids,
    sequence,
    tiny,
    tiny_reference,
)

pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = [torch.float32, torch.bfloat16]


def _close(a: Tensor, b: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(a.float(), b.float(), atol=tolerance, rtol=tolerance)


# ── against transformers ─────────────────────────────────────────────────────────────────────


def _llama(config: ModelConfig, seed: int) -> torch.nn.Module:
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    model = LlamaForCausalLM(llama_config(config)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Large enough that attention is not uniform and norms are not all ones.
            scale = 0.3 if name.endswith("norm.weight") else 0.15
            parameter.copy_(scale * torch.randn_like(parameter) + ("norm" in name))
    return model


def _checkpoint_of(model: torch.nn.Module, config: ModelConfig) -> Checkpoint:
    state = model.state_dict()
    tensors = {}
    for name, shape in config.tensor_shapes().items():
        values = state[llama_name(name)].numpy()
        tensors[name] = StoredTensor(F32, shape, values.view(np.uint8).reshape(-1))

    def no_tokenizer() -> object:
        raise AssertionError("this test has no text")

    return Checkpoint(config, tensors, 0, None, no_tokenizer)  # type: ignore[arg-type]


CONFIGS = {
    "grouped, untied": (4, 2, 16, False),
    "multi-head, tied": (4, 4, 16, True),
    "one kv head, wide heads": (6, 1, 24, True),
}


@pytest.mark.parametrize("shape", CONFIGS.values(), ids=CONFIGS.keys())
def test_logits_equal_transformers(shape: tuple[int, int, int, bool]) -> None:
    heads, kv_heads, head_dim, tied = shape
    config = ModelConfig(
        name="random",
        family="llama",
        num_layers=3,
        hidden_size=48,
        num_attention_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=88,
        vocab_size=131,
        tied_embeddings=tied,
        max_context=256,
        rope_theta=5_000.0,
        norm_eps=1e-5,
    )
    model = _llama(config, seed=heads)
    ids = random_ids(150, seed=1, vocabulary=config.vocab_size)
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    checkpoint = _checkpoint_of(model, config)
    _close(ReferenceModel(checkpoint).logits(ids), theirs, 1e-4)

    ours = load_transformer(checkpoint, torch.float32, CPU)
    cache = new_cache(ours)
    for start, stop in ((0, 20), (20, 21), (21, 150)):
        part = sequence(ids[start:stop], start=start, table=range(5, 30))
        _close(logits(ours, cache, part)["a"], theirs[stop - 1], 1e-4)


# ── the cache, chunks and pages against full recomputation ───────────────────────────────────


def test_cached_decoding_equals_full_recomputation() -> None:
    ids = random_ids(60, seed=3)
    expected = tiny_reference().logits(ids)
    cache = new_cache(tiny())
    first = logits(tiny(), cache, sequence(ids[:8], table=range(8)))["a"]
    _close(first, expected[7], 1e-4)
    for position in range(8, len(ids)):
        one = sequence([ids[position]], start=position, table=range(8))
        _close(logits(tiny(), cache, one)["a"], expected[position], 1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunks", [[300], [1, 299], [16, 16, 268], [150, 1, 149], [7] * 42 + [6]])
def test_chunked_prefill_equals_whole(dtype: torch.dtype, chunks: list[int]) -> None:
    ids = random_ids(sum(chunks), seed=4)
    expected = tiny_reference().logits(ids)[-1]
    cache = new_cache(tiny(dtype))
    start = 0
    for size in chunks:
        last = start + size == len(ids)
        part = sequence(ids[start : start + size], start=start, table=range(20), samples=last)
        result = logits(tiny(dtype), cache, part)
        assert bool(result) == last
        start += size
    if dtype is torch.float32:
        _close(result["a"], expected, 1e-4)
    else:
        assert _divergence(expected, result["a"]) < 0.01


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tables", [[range(12)], [[9, 2, 30, 4, 17, 63, 0, 21, 22, 23, 5, 1]]])
def test_scattered_blocks_equal_consecutive_ones(
    dtype: torch.dtype, tables: Sequence[Sequence[int]]
) -> None:
    ids = random_ids(170, seed=5)
    model = tiny(dtype)
    results = []
    for table in (range(20, 32), *tables):
        cache = new_cache(model)
        for layer in range(model.config.num_layers):
            _dirty(cache, layer)
        logits(model, cache, sequence(ids[:90], table=table))
        logits(model, cache, sequence(ids[90:-1], start=90, table=table))
        results.append(logits(model, cache, sequence(ids[-1:], start=169, table=table))["a"])
    # The same numbers in the same order of operations: equal to the last bit.
    assert torch.equal(results[0], results[1])


def _dirty(cache: PagedKVCache, layer: int) -> None:
    """Leave large finite numbers everywhere, as requests do that have gone."""
    cache.store.planes[layer][0].fill_(1e3)


def _divergence(expected: Tensor, actual: Tensor) -> float:
    """Kullback–Leibler divergence of two distributions given as logits, in nats."""
    p, q = expected.log_softmax(-1), actual.log_softmax(-1)
    return float((p.exp() * (p - q)).sum())


def test_bfloat16_stays_close_to_float32() -> None:
    total = 0.0
    for seed in range(20):
        ids = random_ids(40, seed=100 + seed)
        expected = tiny_reference().logits(ids)[-1]
        actual = logits(
            tiny(torch.bfloat16), new_cache(tiny(torch.bfloat16)), sequence(ids, table=range(3))
        )["a"]
        divergence = _divergence(expected, actual)
        assert divergence < 0.03
        total += divergence
    assert total / 20 < 0.008


def test_only_sequences_that_sample_get_logits() -> None:
    cache = new_cache(tiny())
    a = sequence(random_ids(5, 1), table=[0], samples=False, request_id="a")
    b = sequence(random_ids(5, 2), table=[1], request_id="b")
    assert logits(tiny(), cache, a).keys() == set()
    mixed = logits(tiny(), new_cache(tiny()), a, b)
    assert mixed.keys() == {"b"}
    _close(mixed["b"], tiny_reference().logits(b.token_ids)[-1], 1e-4)


# ── the parts against closed forms ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 3, 40])
@pytest.mark.parametrize("with_bias", [False, True])
def test_packed_linear_equals_plain(dtype: torch.dtype, tokens: int, with_bias: bool) -> None:
    generator = torch.Generator().manual_seed(tokens)
    weight = torch.randn(72, 40, generator=generator).to(dtype)
    bias = torch.randn(72, generator=generator).to(dtype) if with_bias else None
    x = torch.randn(tokens, 40, generator=generator).to(dtype)
    plain, packed = PlainLinear(weight, bias), make_linear(weight, bias)
    assert isinstance(packed, PackedLinear) == PackedLinear.supports(dtype, CPU)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    _close(packed(x), plain(x), tolerance)
    assert packed.nbytes == plain.nbytes == weight.nbytes + (0 if bias is None else bias.nbytes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("magnitude", [1e-6, 1.0, 1e4])
def test_rms_norm_equals_its_formula(dtype: torch.dtype, magnitude: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x = magnitude * torch.randn(5, 64, generator=generator)
    weight = torch.randn(64, generator=generator)
    exact = x.double() / torch.sqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-5) * weight
    _close(RMSNorm(weight, 1e-5, dtype)(x), exact, 1e-5 if dtype is torch.float32 else 1e-2)


def test_rotation_turns_each_pair_by_its_angle() -> None:
    table = RotaryTable(Rope(100.0), 8, 50, CPU)
    x = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(2))
    rotated = x.clone()
    positions = torch.tensor([0, 7, 49])
    rotate_(rotated, table.at(positions))
    for token, position in enumerate(positions.tolist()):
        for pair in range(4):
            angle = torch.tensor(position * 100.0 ** (-2 * pair / 8), dtype=torch.float64)
            real, imaginary = x[token, :, 2 * pair], x[token, :, 2 * pair + 1]
            _close(rotated[token, :, 2 * pair], real * angle.cos() - imaginary * angle.sin(), 1e-5)
            _close(
                rotated[token, :, 2 * pair + 1], real * angle.sin() + imaginary * angle.cos(), 1e-5
            )


class _LargestTensor(TorchDispatchMode):
    """Notes the bytes of the largest tensor that any operation makes."""

    num_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.num_bytes = max(self.num_bytes, result.untyped_storage().nbytes())
        return result


def test_a_long_table_is_exact_and_nothing_larger_is_made_on_the_way() -> None:
    with _LargestTensor() as largest:
        table = RotaryTable(Rope(500_000.0), 8, 50_001, CPU)
    assert largest.num_bytes == table.nbytes == 50_001 * 4 * 8
    assert table.max_positions == 50_001
    positions = torch.arange(50_001, dtype=torch.float64)
    for pair in range(4):
        angles = positions * 500_000.0 ** (-2 * pair / 8)
        turns = table.at(torch.arange(50_001))[:, 0, pair]
        _close(turns.real, angles.cos(), 1e-6)
        _close(turns.imag, angles.sin(), 1e-6)


def test_halves_become_neighbours() -> None:
    rows = torch.arange(12).unsqueeze(1)
    assert halves_to_pairs(rows, 6).flatten().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert halves_to_pairs(torch.arange(6), 6).tolist() == [0, 3, 1, 4, 2, 5]
