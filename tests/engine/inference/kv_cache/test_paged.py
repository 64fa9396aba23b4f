"""Blocks of a paged cache: where positions lie, and what happens to whole blocks."""

from __future__ import annotations

import math

import pytest
import torch

from engine.inference.kv_cache.make import make_cache
from engine.inference.kv_cache.paged import PagedKVCache
from engine.inference.lane_settings import KVSettings
from tests.engine.inference.runs_for_tests import CPU, tiny

pytestmark = pytest.mark.usefixtures("one_thread")


def _cache(num_blocks: int = 6, block_size: int = 4) -> PagedKVCache:
    return make_cache(
        tiny().config,
        KVSettings(),
        num_blocks=num_blocks,
        dtype=torch.float32,
        device=CPU,
        block_size=block_size,
    )


def _filled_cache() -> tuple[PagedKVCache, list[torch.Tensor]]:
    cache = _cache()
    contents = [torch.randn(24, 2, 2, 16) for _ in range(2)]
    for layer, kv in enumerate(contents):
        cache.write(layer, kv, slice(0, 24))
    return cache, contents


def test_pages_keep_what_was_written() -> None:
    cache = _cache()
    table = [4, 0, 5]
    kv = torch.randn(11, 2, 2, 16)
    slots = cache.slots(table, 0, 11)
    assert slots == [16, 17, 18, 19, 0, 1, 2, 3, 20, 21, 22]
    cache.write(1, kv, torch.tensor(slots))
    for length in (1, 4, 5, 11):
        found = cache.read(1, cache.locate(table, [range(length)]))
        assert torch.equal(found.keys, kv[:length, 0].transpose(0, 1))
        assert torch.equal(found.values, kv[:length, 1].transpose(0, 1))
    untouched = cache.read(0, cache.locate(table, [range(11)]))
    assert not untouched.keys.any()
    assert not untouched.values.any()


def test_consecutive_blocks_are_read_as_a_view() -> None:
    cache = _cache()
    pages = cache.locate([2, 3, 4], [range(10)])
    assert pages.first_slot == 8
    before = cache.read(0, pages).keys
    cache.write(0, torch.ones(10, 2, 2, 16), slice(8, 18))
    assert before.eq(1).all()
    # The third block is not needed yet.
    assert cache.locate([2, 3, 0], [range(8)]).first_slot == 8
    assert cache.locate([2, 4], [range(8)]).first_slot is None


def test_only_blocks_of_the_asked_positions_are_read() -> None:
    cache, contents = _filled_cache()
    nobody = 99  # a block that does not exist: touching it would fail
    view = cache.locate([nobody, 2, 3, nobody], [range(5, 12)])
    assert (view.first_slot, view.spans) == (9, (range(5, 12),))
    # Whole blocks come along with what was asked for, and say which positions they are.
    gathered = cache.locate([4, nobody, 0, 3, 5], [range(2), range(9, 18)])
    assert gathered.spans == (range(4), range(8, 18))
    assert gathered.positions().tolist() == [*range(4), *range(8, 18)]
    found = cache.read(1, gathered)
    expected = contents[1].view(6, 4, 2, 2, 16)[[4, 0, 3, 5]].reshape(16, 2, 2, 16)[:14]
    assert torch.equal(found.keys, expected[:, 0].transpose(0, 1))
    assert torch.equal(found.values, expected[:, 1].transpose(0, 1))


def test_a_batch_of_pages_is_padded_with_its_own_blocks() -> None:
    cache, contents = _filled_cache()
    pages = cache.locate_batch([[5, 1, 2], [9, 3]], [[range(9)], [range(5, 7)]])
    found = cache.read_batch(0, pages)
    assert found.keys.shape == found.values.shape == (2 * 2, 12, 16)
    assert pages.positions_bs[0].tolist() == list(range(12))
    assert pages.positions_bs[1, :4].tolist() == [4, 5, 6, 7]
    assert (pages.positions_bs[1, 4:] > 1e18).all()
    blocks = contents[0].view(6, 4, 2, 2, 16)
    for row, table in enumerate(([5, 1, 2], [3, 3, 3])):
        expected = blocks[table].reshape(12, 2, 2, 16)
        keys, values = (part.view(2, 2, 12, 16)[:, row] for part in (found.keys, found.values))
        assert torch.equal(keys, expected[:, 0].transpose(0, 1))
        assert torch.equal(values, expected[:, 1].transpose(0, 1))


def test_zeroing_touches_only_the_named_blocks() -> None:
    cache = _cache()
    for layer in range(2):
        cache.write(layer, torch.ones(24, 2, 2, 16), slice(0, 24))
    cache.zero([1, 4, 1])
    for layer in range(2):
        keys = cache.read(layer, cache.locate(range(6), [range(24)])).keys
        sums = keys.reshape(2, 6, -1).sum((0, 2)).tolist()
        assert [total > 0 for total in sums] == [True, False, True, True, False, True]


def test_copied_blocks_hold_the_same_and_no_other_block_changes() -> None:
    cache, contents = _filled_cache()
    cache.copy_blocks([(1, 4), (1, 0), (3, 5)])
    for layer, kv in enumerate(contents):
        expected = kv.view(6, 4, 2, 2, 16)[[1, 1, 2, 3, 1, 3]].reshape(24, 2, 2, 16)
        found = cache.read(layer, cache.locate(range(6), [range(24)]))
        assert torch.equal(found.keys, expected[:, 0].transpose(0, 1))
        assert torch.equal(found.values, expected[:, 1].transpose(0, 1))
    before = [layer.clone() for (layer,) in cache.store.planes]
    cache.copy_blocks([])
    assert all(map(torch.equal, before, [layer for (layer,) in cache.store.planes]))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_blocks_with_numbers_that_are_not_finite_are_found(number: float) -> None:
    cache, _ = _filled_cache()
    assert cache.not_finite(range(6)) == []
    cache.store.planes[0][0][0, 1, 9, 3] = number  # block 2
    cache.store.planes[1][0][1, 0, 23, 15] = number  # block 5
    assert cache.not_finite([5, 4, 2, 2, 0]) == [2, 5]
    assert cache.not_finite([0, 1]) == []
    cache.zero([])
    cache.zero(cache.not_finite(range(6)))
    assert cache.not_finite(range(6)) == []
