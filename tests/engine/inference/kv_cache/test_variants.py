"""Every variant of the cache under a whole model: each compared with a plainer way to the same."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch
from torch import Tensor

from engine.inference.executor import TorchExecutor
from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.lane_settings import KVLayout, KVSettings, parse_kv
from engine.inference.model.batch import build_batch
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.inference.runs_for_tests import (
    Run,
    alone,
    logits,
    new_cache,
    plan,
    random_ids,
    sequence,
    tiny,
    tiny_reference,
)

pytestmark = pytest.mark.usefixtures("one_thread")

VARIANTS = [
    "contiguous", "paged-int8", "paged-int4", "contiguous-int8", "contiguous-int4",
    "paged-window-20", "paged-window-20-sinks-4", "contiguous-window-20-sinks-4",
    "paged-int8-window-33-sinks-2", "paged-int4-window-16",
]  # fmt: skip
SLAB = 256


def _executor(name: str, num_tokens: int = 1_024) -> TorchExecutor:
    settings = parse_kv(name)
    block_size = SLAB if settings.layout is KVLayout.CONTIGUOUS else 16
    return TorchExecutor(
        tiny(), num_blocks=num_tokens // block_size, block_size=block_size, kv=settings
    )


def _divergences(expected: Tensor, actual: Tensor) -> Tensor:
    """Kullback–Leibler divergences of rows of logits, in nats."""
    p, q = expected.log_softmax(-1), actual.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


@torch.inference_mode()
def _all_rows(cache: PagedKVCache, ids: list[int], chunks: list[int]) -> Tensor:
    """Logits of all positions, ``[t, v]``, computed in chunks."""
    rows: list[Tensor] = []
    start = 0
    for size in chunks:
        table = range(-(-len(ids) // cache.block_size))
        part = sequence(ids[start : start + size], start=start, table=table)
        batch = dataclasses.replace(build_batch(plan(part), cache), sample_rows=None)
        rows.append(tiny().logits(batch, cache))
        start += size
    return torch.cat(rows)


def _reference(ids: list[int], settings: KVSettings) -> Tensor:
    """The plain model with the hidden scores taken out by hand."""

    def hide(point: str, layer: int, tensor: Tensor) -> Tensor:
        if point != "scores" or settings.window is None:
            return tensor
        i, j = torch.arange(len(ids)).unsqueeze(1), torch.arange(len(ids))
        return tensor.masked_fill((i - j >= settings.window) & (j >= settings.sinks), -torch.inf)

    return tiny_reference().logits(ids, hide)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_those_of_a_request_that_runs_alone(name: str, seed: int) -> None:
    """Arrivals, chunks and preemptions, on a cache too small for all."""
    rng = random.Random(seed)
    limits = SchedulerLimits(max_running=3, max_step_tokens=rng.choice([5, 17, 64]))
    run = Run(_executor(name, num_tokens=512 if "contiguous" in name else 128), limits)
    wanted = {}
    for number in range(4):
        prompt = random_ids(rng.choice([1, 16, 17, 50, 70]), seed=10 * seed + number)
        wanted[f"r{number}"] = (prompt, rng.choice([3, 16, 40]))
        run.add(f"r{number}", *wanted[f"r{number}"])
        for _ in range(rng.randrange(5)):
            run.loop.step()
    run.finish()
    run.scheduler.check_integrity()
    for request_id, (prompt, max_tokens) in wanted.items():
        assert run.tokens(request_id) == alone(_executor(name), prompt, max_tokens), request_id


@pytest.mark.parametrize("name", ["paged", *VARIANTS])
def test_nothing_leaks_from_earlier_owners_of_a_block(name: str) -> None:
    prompt = random_ids(50, seed=3)
    expected = alone(_executor(name), prompt, 30)
    executor = _executor(name)
    for planes in executor._cache.store.planes:
        for plane in planes:
            plane.fill_(77)  # finite, and far from anything the model writes
    assert alone(executor, prompt, 30) == expected


def test_contiguous_equals_paged_to_the_last_bit() -> None:
    ids = random_ids(200, seed=4)
    results = []
    for settings, block_size in ((KVSettings(), 16), (KVSettings(KVLayout.CONTIGUOUS), SLAB)):
        cache = new_cache(tiny(), 512 // block_size, settings, block_size)
        table = [*range(3, 16)] if block_size == 16 else [1]
        other = [*range(16, 29)] if block_size == 16 else [0]
        parts = [logits(tiny(), cache, sequence(ids[:150], table=table))]
        parts.append(logits(tiny(), cache, sequence(ids[:170], table=other)))
        both = (
            sequence(ids[150:151], start=150, table=table, request_id="a"),
            sequence(ids[170:171], start=170, table=other, request_id="b"),
        )
        parts.append(logits(tiny(), cache, *both))
        results.append(torch.stack([row for part in parts for row in part.values()]))
    assert torch.equal(results[0], results[1])


def test_a_slab_is_all_taken_by_a_short_text() -> None:
    run = Run(_executor("contiguous", num_tokens=512))
    run.add("a", random_ids(5, seed=1), 4)
    run.loop.step()
    assert run.scheduler.pool.num_used * run.executor.block_size == SLAB
    run.add("b", random_ids(5, seed=2), 4)
    run.add("c", random_ids(5, seed=3), 4)
    run.loop.step()
    run.loop.step()
    assert run.tokens("b")
    assert not run.tokens("c")  # two slabs, two requests
    run.finish()
    assert len(run.tokens("c")) == 4


def test_off_gives_the_tokens_of_on() -> None:
    prompt = random_ids(30, seed=5)
    run = Run(_executor("off"), SchedulerLimits(keep_computed=False))
    run.add("a", prompt, 20)
    run.finish()
    assert run.tokens("a") == alone(_executor("paged"), prompt, 20)
    assert run.executor.kv_bytes_per_token == 0


WINDOWS = [
    KVSettings(window=1),
    KVSettings(window=16),
    KVSettings(window=40),
    KVSettings(window=40, sinks=4),
    KVSettings(window=33, sinks=16),
    KVSettings(window=48, sinks=20),
]


@pytest.mark.parametrize("chunks", [[150], [1] * 150, [60, 1, 1, 30, 5, 53]], ids=["1", "t", "mix"])
@pytest.mark.parametrize("settings", WINDOWS, ids=lambda s: s.name)
def test_a_window_equals_the_reference_with_a_mask(settings: KVSettings, chunks: list[int]) -> None:
    ids = random_ids(150, seed=6)
    actual = _all_rows(new_cache(tiny(), 10, settings), ids, chunks)
    torch.testing.assert_close(actual, _reference(ids, settings), atol=1e-4, rtol=1e-4)


# ── quantised caches: the divergence is bounded and has no edges ─────────────────────────────

# Mean over all positions, twice what was measured. The tiny model is random and far more easily
# moved than a trained one: rounding to bfloat16 alone moves it by 0.004.
BOUNDS = {"int8": 0.0013, "int4": 0.28}


@pytest.mark.kind("O39")
@pytest.mark.parametrize("stored", ["int8", "int4"])
@pytest.mark.parametrize(
    "suffix", ["", "-window-256", "-window-1024-sinks-4", "-window-96-sinks-16"]
)
def test_divergence_of_2_000_positions_is_bounded_and_jumps_nowhere(
    stored: str, suffix: str
) -> None:
    settings = parse_kv(f"paged-{stored}{suffix}")
    ids = random_ids(2_000, seed=7)
    exact = _reference(ids, settings)
    # A long chunk, then single tokens over edges of blocks and of 1,024 positions.
    chunks = [250, 1, 1, 1, 1, 1, 1, 1, 1, 762, *[1] * 12, 968]
    cache = new_cache(tiny(), 125, settings)
    divergence_t = _divergences(exact, _all_rows(cache, ids, chunks))
    assert divergence_t.mean() < BOUNDS[stored]
    assert divergence_t.max() < 15 * BOUNDS[stored]
    edges = {edge + i for edge in (16, 256, 1_024, settings.window or 512) for i in range(-2, 8)}
    rows = torch.tensor(sorted(edges))
    assert divergence_t[rows].mean() < 2 * divergence_t.mean()
    assert divergence_t[rows].max() <= divergence_t.quantile(0.999)
    by_offset = divergence_t.view(-1, 16).mean(0)  # position within its block
    assert by_offset.max() < 1.5 * by_offset.mean()


def test_int8_is_the_reference_with_rounded_keys_and_values() -> None:
    """The same rounding written plainly, in the reference's own order of dimensions."""
    ids = random_ids(300, seed=8)

    def rounded(point: str, layer: int, tensor: Tensor) -> Tensor:
        if point not in ("k_rotated", "v"):
            return tensor
        step = (tensor.abs().amax(-1, keepdim=True) / 127 * (1 + 2**-11)).half().float()
        return (tensor / step).round() * step

    expected = tiny_reference().logits(ids, rounded)
    actual = _all_rows(new_cache(tiny(), 20, parse_kv("paged-int8")), ids, [200, 1, 1, 98])
    between = _divergences(expected, actual).mean()
    assert between < 0.05 * _divergences(_reference(ids, KVSettings()), actual).mean()


def test_fewer_bits_diverge_more() -> None:
    ids = random_ids(300, seed=8)
    exact = _reference(ids, KVSettings())
    means = [
        _divergences(exact, _all_rows(new_cache(tiny(), 20, parse_kv(name)), ids, [300])).mean()
        for name in ("paged", "paged-int8", "paged-int4")
    ]
    assert means[0] < 1e-8
    assert means[0] < 0.01 * means[1] < 0.0001 * means[2]
