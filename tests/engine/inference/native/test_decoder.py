"""The native step against the plain recomputation, the step in torch, and itself."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
import torch

from engine.errors import StepFailed
from engine.inference.executor import TorchExecutor
from engine.inference.kv_cache.make import make_cache
from engine.inference.lane_settings import KVSettings
from engine.inference.model.batch import build_batch
from engine.inference.model.load import load_transformer
from engine.inference.model.transformer import first_layers
from engine.inference.native.decoder import MAX_PLAIN_ROWS
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.native.steps import decoder, step, summary
from tests.engine.inference.runs_for_tests import (
    CPU,
    GREEDY,
    alone,
    logits,
    new_cache,
    plan,
    random_ids,
    sequence,
    tiny,
    tiny_executor,
    tiny_reference,
)

DTYPES = [torch.float32, torch.bfloat16]
SHUFFLED = [9, 2, 30, 4, 17, 63, 0, 21, 22, 23, 5, 1, 40, 41, 39, 50, 51, 8, 7, 6, 60, 61, 11]


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def _tolerance(dtype: torch.dtype) -> float:
    """Largest difference from float32 logits of up to 13.

    In bfloat16 an input of a matrix is off by up to 2^-9 of itself, and so is a weight. Each logit
    sums 64 products of unit size and standard deviation 3 / 8 each, behind two layers whose own
    errors add to it: 2 · 2^-9 · 13 · sqrt(9 matrices deep) is 0.15; three times that is safe.
    """
    return 1e-4 if dtype is torch.float32 else 0.45


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunks", [[1] * 20, [7, 1, 1, 12], [16, 16, 16], [100, 1, 27], [128]])
def test_chunks_and_single_tokens_equal_full_recomputation(
    dtype: torch.dtype, chunks: list[int]
) -> None:
    ids = random_ids(sum(chunks), seed=len(chunks))
    expected = tiny_reference().logits(ids)
    native = decoder(tiny(dtype), new_cache(tiny(dtype)))
    start = 0
    for size in chunks:
        part = sequence(ids[start : start + size], start=start, table=SHUFFLED)
        start += size
        actual = step(native, part)["a"]
        assert (actual - expected[start - 1]).abs().max() < _tolerance(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(8))
@torch.inference_mode()
def test_ragged_steps_equal_torch(dtype: torch.dtype, seed: int) -> None:
    """Any mix of prefixes and chunks; the prefixes written by torch, the rest read by both."""
    rng = random.Random(seed)
    ours, theirs = new_cache(tiny(dtype), 128), new_cache(tiny(dtype), 128)
    native = decoder(tiny(dtype), ours)
    blocks = list(range(128))
    rng.shuffle(blocks)
    parts = []
    for number in range(rng.randrange(1, 9)):
        prefix = rng.choice([0, 1, 15, 16, 31, 100])
        new = rng.choice([1, 1, 1, 2, 5, 16])
        ids = random_ids(prefix + new, seed=rng.getrandbits(30))
        table = [blocks.pop() for _ in range(-(-(prefix + new) // 16))]
        name = f"r{number}"
        for kv_cache in (ours, theirs):
            if prefix:
                logits(tiny(dtype), kv_cache, sequence(ids[:prefix], table=table))
        samples = rng.random() < 0.7
        parts.append(
            sequence(ids[prefix:], start=prefix, table=table, request_id=name, samples=samples)
        )
    actual, expected = step(native, *parts), logits(tiny(dtype), theirs, *parts)
    assert actual.keys() == expected.keys()
    for name, row in actual.items():
        assert (row - expected[name]).abs().max() < _tolerance(dtype), name
    # What was stored is the same too, up to one rounding.
    for layer in range(2):
        table = parts[0].block_table
        spans = [range(parts[0].start + parts[0].num_tokens)]
        mine = ours.read(layer, ours.locate(table, spans))
        other = theirs.read(layer, theirs.locate(table, spans))
        bound = 1e-5 if dtype is torch.float32 else 0.1
        assert (mine.keys.float() - other.keys.float()).abs().max() < bound
        assert (mine.values.float() - other.values.float()).abs().max() < bound


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_bit_for_bit_alone_and_in_any_batch(dtype: torch.dtype) -> None:
    lengths = [3, 17, 300, 40, 1, 129, 64, 90]
    tables, ids, free = [], [], list(SHUFFLED) + list(range(64, 128))
    for number, length in enumerate(lengths):
        tables.append([free.pop() for _ in range(-(-(length + 1) // 16))])
        ids.append(random_ids(length + 1, seed=number))
    kv_cache = new_cache(tiny(dtype), 128)
    native = decoder(tiny(dtype), kv_cache)
    for table, text in zip(tables, ids, strict=True):
        for start in range(0, len(text) - 1, MAX_PLAIN_ROWS):
            part = text[start : min(start + MAX_PLAIN_ROWS, len(text) - 1)]
            step(native, sequence(part, start=start, table=table))
    rows = [
        sequence([text[-1]], start=len(text) - 1, table=table, request_id=str(number))
        for number, (table, text) in enumerate(zip(tables, ids, strict=True))
    ]
    expected = {}
    for row in rows:
        expected |= step(native, row)
    for batch in (rows, rows[::-1], rows[2:5], rows[:2]):
        for name, row in step(native, *batch).items():
            assert torch.equal(row, expected[name])


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(dtype: torch.dtype, threads: int) -> None:
    ids = random_ids(90, seed=2)
    results = []
    for count in (1, threads, 3):
        torch.set_num_threads(count)
        native = decoder(tiny(dtype), new_cache(tiny(dtype)))
        step(native, sequence(ids[:80], table=range(6)))
        results.append(step(native, sequence(ids[80:], start=80, table=range(6)))["a"])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_long_text_is_merged_from_its_ranges() -> None:
    ids = random_ids(1_030, seed=7)
    kv_cache = new_cache(tiny(), 80)
    native = decoder(tiny(), kv_cache)
    table = list(range(79, 0, -1))
    logits(tiny(), kv_cache, sequence(ids[:1_000], table=table))
    expected = tiny_reference().logits(ids)
    for start, stop in ((1_000, 1_001), (1_001, 1_017), (1_017, 1_030)):
        actual = step(native, sequence(ids[start:stop], start=start, table=table))["a"]
        assert (actual - expected[stop - 1]).abs().max() < 1e-4


@pytest.mark.parametrize("dtype", DTYPES)
@torch.inference_mode()
def test_long_chunks_beside_short_ones_equal_torch(dtype: torch.dtype) -> None:
    """Of several blocks of positions and several pieces of queries, behind prefixes and alone."""
    ours, theirs = new_cache(tiny(dtype), 128), new_cache(tiny(dtype), 128)
    native = decoder(tiny(dtype), ours)
    blocks = list(range(128))
    random.Random(1).shuffle(blocks)
    parts = []
    for number, (prefix, new) in enumerate(((0, 300), (130, 33), (127, 1), (5, 130), (300, 20))):
        ids = random_ids(prefix + new, seed=number)
        table = [blocks.pop() for _ in range(-(-(prefix + new) // 16))]
        for kv_cache in (ours, theirs):
            if prefix:
                logits(tiny(dtype), kv_cache, sequence(ids[:prefix], table=table))
        part = sequence(ids[prefix:], start=prefix, table=table, request_id=str(number))
        parts.append(part._replace(num_drafts=new - 1))  # so that every row is seen
    result = native.logits(plan(*parts))
    batch = build_batch(plan(*parts), theirs)
    expected = tiny(dtype).logits(batch, theirs)
    of_each = expected.split([part.num_sampled for part in batch.sampled])
    rows = {part.request_id: its for part, its in zip(batch.sampled, of_each, strict=True)}
    wanted = torch.cat([rows[part.request_id] for part in result.sampled])
    assert (result.logits_nv - wanted).abs().max() < _tolerance(dtype)


@pytest.mark.parametrize("sizes", [(16, 4), (150, 40)])
@pytest.mark.parametrize(("window", "sinks"), [(5, 0), (20, 4), (300, 2)])
def test_windows_and_sinks_equal_torch(window: int, sinks: int, sizes: tuple[int, int]) -> None:
    middle = 401 + sizes[0]
    ids = random_ids(middle + sizes[1], seed=window)
    settings = KVSettings(window=window, sinks=sinks)
    caches = [
        make_cache(tiny().config, settings, num_blocks=38, dtype=torch.float32, device=CPU)
        for _ in range(2)
    ]
    native = decoder(tiny(), caches[0])
    table = range(38)
    for kv_cache in caches:
        logits(tiny(), kv_cache, sequence(ids[:400], table=table))
    for start, stop in ((400, 401), (401, middle), (middle, len(ids))):
        part = sequence(ids[start:stop], start=start, table=table)
        actual, expected = step(native, part)["a"], logits(tiny(), caches[1], part)["a"]
        assert (actual - expected).abs().max() < 1e-4


def test_tied_embeddings_and_rows_beyond_the_tokenizer() -> None:
    checkpoint = tiny_random_checkpoint(tied_embeddings=True, padding_rows=7)
    transformer = load_transformer(checkpoint, torch.float32, CPU)
    native = decoder(transformer, new_cache(transformer), num_tokens=512, unknown_ids=[600, 5, 3])
    part = sequence(random_ids(9, seed=1), table=[0])
    expected = logits(transformer, new_cache(transformer), part)["a"].clone()
    expected[512:] = expected[[3, 5]] = -math.inf
    torch.testing.assert_close(step(native, part)["a"], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_summary_is_that_of_the_logits(dtype: torch.dtype) -> None:
    native = decoder(tiny(dtype), new_cache(tiny(dtype)), num_tokens=500, unknown_ids=[17])
    parts = [sequence(random_ids(4 + i, seed=i), table=[i], request_id=str(i)) for i in range(5)]
    rows = torch.stack(list(step(native, *parts).values()))
    told = summary(native, *parts)
    assert torch.equal(told.likeliest_n, rows.argmax(-1))
    torch.testing.assert_close(told.logsumexp_n, rows.logsumexp(-1), atol=1e-5, rtol=1e-6)


def test_numbers_that_overflow_fail_the_step_and_no_other() -> None:
    executor = tiny_executor()
    executor.add_request("a", GREEDY)
    kv_cache = executor._cache
    executor.execute(plan(sequence(random_ids(20, seed=1), table=[0, 1])))
    kv_cache.store.planes[0][0][1, :, 3] = math.nan
    with pytest.raises(StepFailed):
        executor.execute(plan(sequence([1], start=20, table=[0, 1])))
    healthy = plan(sequence(random_ids(20, seed=1), table=[0, 1]))
    assert math.isfinite(executor.execute(healthy).samples[0].logprob)


@pytest.mark.parametrize("dtype", DTYPES)
@torch.inference_mode()
def test_the_first_layers_alone_equal_torch_and_leave_the_others_caches(dtype: torch.dtype) -> None:
    ids = random_ids(60, seed=8)
    ours, theirs = new_cache(tiny(dtype)), new_cache(tiny(dtype))
    native, shallow = decoder(tiny(dtype), ours), first_layers(tiny(dtype), 1)
    for start, stop in ((0, 50), (50, 51), (51, 60)):
        part = sequence(ids[start:stop], start=start, table=SHUFFLED)
        actual = native.logits(plan(part), num_layers=1).logits_nv[0]
        expected = logits(shallow, theirs, part)["a"]
        assert (actual - expected).abs().max() < _tolerance(dtype)
    pages = ours.locate(SHUFFLED, [range(60)])
    for kv in ours.read(0, pages)[:2]:
        assert kv is not None
        assert kv.abs().max() > 0
    for kv in ours.read(1, pages)[:2]:
        assert kv is not None
        assert kv.abs().max() == 0
    for count in (0, 3):
        with pytest.raises(ValueError, match="2 layers"):
            native.logits(plan(sequence([1], table=[0])), num_layers=count)


def test_greedy_texts_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = random_ids(11, seed=5)
    ours = alone(tiny_executor(), prompt, 60)
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", "off")
    assert ours == alone(tiny_executor(), prompt, 60)


def test_plans_that_make_no_sense_are_refused() -> None:
    native = decoder(tiny(), new_cache(tiny()))
    vocabulary = tiny().config.vocab_size
    for part in (
        sequence([], table=[0]),
        sequence([1] * 17, table=[0]),
        sequence([1, vocabulary], table=[0]),
        sequence([-1], table=[0]),
        sequence([1], start=10**6, table=[0]),
    ):
        with pytest.raises(ValueError, match="a scheduled sequence"):
            native.logits(plan(part))
    with pytest.raises(ValueError, match="at least one sequence"):
        native.logits(plan())


def test_long_chunks_are_left_to_torch_where_kernels_are_plain() -> None:
    native = decoder(tiny(), new_cache(tiny()))
    native.max_rows = MAX_PLAIN_ROWS
    assert native.takes(plan(sequence([1] * MAX_PLAIN_ROWS, table=range(9))))
    assert not native.takes(plan(sequence([1] * (MAX_PLAIN_ROWS + 1), table=range(9))))


def test_packed_weights_are_counted() -> None:
    executor = TorchExecutor(tiny(), num_blocks=2)
    matrices = tiny().config.num_parameters - 64 * 5 - 512 * 64
    assert executor.weight_bytes == tiny().weights.nbytes + 4 * matrices
