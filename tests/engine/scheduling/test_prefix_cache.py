"""Prefix caching: whoever begins like an earlier text starts there, and never on foreign blocks."""

from __future__ import annotations

import random

import pytest

from engine.errors import CapacityError
from engine.scheduling.blocks import BlockPool
from engine.scheduling.events import RequestFinished, RequestStarted, StepCompleted
from engine.scheduling.prefix_cache import PrefixCache, PrefixChain, chain_hash
from engine.scheduling.request import FinishReason
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.scheduling.fakes import (
    expected_output,
    make_loop,
    make_request,
    outputs_of,
    run_to_end,
)


def one_after_another(loop, events, *prompts, max_tokens=3):
    """Run prompts in turn; the outputs, and what each found in the cache when it started."""
    for index, prompt in enumerate(prompts):
        loop.add(make_request(f"r{index}", prompt, max_tokens))
        run_to_end(loop)
    outputs = outputs_of(events)
    started = [event for event in events if isinstance(event, RequestStarted)]
    for index, prompt in enumerate(prompts):
        assert outputs[f"r{index}"] == expected_output(prompt, max_tokens)
    return [event.cached_tokens for event in started]


def test_it_is_off_by_default():
    loop, _, events = make_loop()
    assert one_after_another(loop, events, [1] * 20, [1] * 20) == [0, 0]
    assert loop.scheduler.pool.num_cached == 0
    assert loop.scheduler.pool.num_free == 64


@pytest.mark.parametrize(
    ("length", "cached"),
    [(1, 0), (3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (13, 12)],
)
def test_a_hit_is_whole_blocks_and_leaves_a_token_to_compute(length, cached):
    loop, _, events = make_loop(block_size=4, prefix_cache=PrefixCache())
    prompt = list(range(length))
    assert one_after_another(loop, events, prompt, prompt) == [0, cached]
    tokens = [event.num_tokens for event in events if isinstance(event, StepCompleted)]
    assert tokens[0] == length
    assert tokens[3] == length - cached


def test_only_the_common_beginning_is_found():
    loop, _, events = make_loop(block_size=4, prefix_cache=PrefixCache())
    base = list(range(16))
    other = [*range(10), 90, 91, 12, 13, 14, 15]
    shifted = [50, *range(15)]
    assert one_after_another(loop, events, base, other, shifted, base) == [0, 8, 0, 12]


def test_an_answer_is_found_by_the_next_turn_of_the_chat():
    loop, _, events = make_loop(block_size=4, prefix_cache=PrefixCache())
    prompt = [3, 1, 4, 1, 5]
    turn = [*prompt, *expected_output(prompt, 8), 9, 9]
    loop.add(make_request("first", prompt, 8))
    run_to_end(loop)
    loop.add(make_request("second", turn, 2))
    run_to_end(loop)
    # 12 of the 13 tokens of the first turn were computed: the last is never fed back.
    assert [e.cached_tokens for e in events if isinstance(e, RequestStarted)] == [0, 12]
    assert outputs_of(events)["second"] == expected_output(turn, 2)


def test_running_requests_share_what_an_earlier_one_left():
    loop, _, events = make_loop(block_size=4, prefix_cache=PrefixCache())
    system = list(range(12))
    one_after_another(loop, events, [*system, 1])
    for name in "abc":
        loop.add(make_request(name, [*system, ord(name) % 90], 5))
    loop.step()
    loop.scheduler.check_integrity()
    assert loop.scheduler.pool.num_used == 3 + 3  # three shared blocks, one of its own each
    run_to_end(loop)
    for name in "abc":
        assert outputs_of(events)[name] == expected_output([*system, ord(name) % 90], 5)


def test_two_that_compute_the_same_at_once_keep_one_copy():
    loop, _, events = make_loop(block_size=4, prefix_cache=PrefixCache())
    for name in "ab":
        loop.add(make_request(name, [*range(9), ord(name) % 90], 6))
    loop.step()
    loop.scheduler.check_integrity()
    assert loop.scheduler.pool.num_used == 2 + 1 + 1
    run_to_end(loop)
    for name in "ab":
        assert outputs_of(events)[name] == expected_output([*range(9), ord(name) % 90], 6)


@pytest.mark.kind("O07")
@pytest.mark.parametrize("block_hash", [lambda _previous, _tokens: 0, lambda previous, _: previous])
def test_a_hash_that_always_collides_hands_over_no_foreign_block(block_hash):
    prefix_cache = PrefixCache(block_hash)
    loop, _, events = make_loop(block_size=4, prefix_cache=prefix_cache)
    rng = random.Random(0)
    for index in range(60):
        prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 14))]
        loop.add(make_request(f"r{index}", prompt, 4))
        run_to_end(loop)
        assert outputs_of(events)[f"r{index}"] == expected_output(prompt, 4)
    assert len(prefix_cache) == 1


def test_blocks_with_equal_tokens_after_different_texts_are_told_apart():
    """The hash sees a block's own tokens only: the predecessor has to be compared, too."""
    prefix_cache = PrefixCache(lambda _previous, tokens: hash(tokens))
    loop, _, events = make_loop(block_size=2, prefix_cache=prefix_cache)
    first, second = [1, 1, 7, 7, 5], [2, 2, 7, 7, 5]
    assert one_after_another(loop, events, first, second, first) == [0, 0, 4]


def test_the_hash_of_a_block_depends_on_all_before_it():
    assert chain_hash(1, (5, 6)) != chain_hash(2, (5, 6))
    assert chain_hash(1, (5, 6)) != chain_hash(1, (6, 5))


def test_the_least_recently_used_text_is_evicted_first_and_its_end_before_its_beginning():
    cache = PrefixCache()
    loop, _, events = make_loop(num_blocks=8, block_size=2, prefix_cache=cache)
    a, b = [1, 2, 3, 4, 5], [6, 7, 8, 9, 10]
    # Each leaves two full blocks, and a later turn uses a's again.
    assert one_after_another(loop, events, a, b, a, max_tokens=1) == [0, 0, 4]
    pool = loop.scheduler.pool
    assert (pool.num_free, pool.num_cached) == (4, 4)
    loop.add(make_request("big", [50 + i for i in range(11)], 1))  # takes 6: 2 are evicted
    run_to_end(loop)
    found = {}
    for name, prompt in (("a", a), ("b", b)):
        blocks = cache.find([tuple(prompt[:2]), tuple(prompt[2:4])])
        found[name] = len(blocks)
    assert found == {"a": 2, "b": 0}
    loop.add(make_request("bigger", [20 + i for i in range(9)], 1))
    run_to_end(loop)
    blocks = cache.find([(1, 2), (3, 4)])
    assert len(blocks) < 2
    loop.scheduler.check_integrity()


def test_one_block_is_evicted_from_the_end_of_a_text():
    cache = PrefixCache()
    pool = BlockPool(3, 2, prefix_cache=cache)
    blocks, chain = pool.allocate(3), PrefixChain()
    for block, tokens in zip(blocks, [(1, 2), (3, 4), (5, 6)], strict=True):
        cache.insert(chain, tokens, block)
    pool.release(reversed(blocks))
    assert (pool.num_free, pool.num_used, pool.num_cached, pool.num_available) == (0, 0, 3, 3)
    assert pool.allocate(1) == [blocks[2]]
    assert cache.find([(1, 2), (3, 4), (5, 6)]) == blocks[:2]
    pool.check_integrity([[blocks[2]]])
    with pytest.raises(CapacityError):
        pool.allocate(3)
    assert pool.num_cached == 2  # nothing was evicted in vain


def test_cached_blocks_never_keep_a_request_from_running():
    loop, _, events = make_loop(num_blocks=8, block_size=2, prefix_cache=PrefixCache())
    rng = random.Random(1)
    prompts = [[rng.randrange(4) for _ in range(rng.randrange(1, 13))] for _ in range(200)]
    one_after_another(loop, events, *prompts)
    assert loop.scheduler.pool.num_used == 0


def test_a_hit_is_not_counted_as_room_for_the_rest():
    """The cached blocks of the hit are all that is available: none is left for its last token."""
    loop, _, events = make_loop(num_blocks=4, block_size=2, prefix_cache=PrefixCache())
    one_after_another(loop, events, [1, 2, 3, 4], max_tokens=1)
    loop.add(make_request("running", [7, 8], 3))
    loop.step()
    loop.step()
    assert loop.scheduler.pool.num_available == loop.scheduler.pool.num_cached == 2
    loop.add(make_request("again", [1, 2, 3, 4, 5], 1))
    loop.step()
    assert [r.request_id for r in loop.scheduler.waiting] == ["again"]
    run_to_end(loop)
    assert outputs_of(events)["again"] == expected_output([1, 2, 3, 4, 5], 1)


def test_its_own_blocks_are_found_again_after_a_preemption():
    loop, _, events = make_loop(num_blocks=32, block_size=4, prefix_cache=PrefixCache())
    prompt = list(range(20))
    loop.add(make_request("a", prompt, 10))
    for _ in range(5):
        loop.step()
    assert loop.preempt("a")
    assert not loop.preempt("a")
    assert not loop.preempt("nobody")
    loop.scheduler.check_integrity()
    run_to_end(loop)
    assert [e.cached_tokens for e in events if isinstance(e, RequestStarted)] == [0, 24]
    assert outputs_of(events)["a"] == expected_output(prompt, 10)


def test_a_prefill_that_has_not_sampled_yet_is_not_offered_to_others():
    """Until then nobody has seen that its keys and values are finite."""
    cache = PrefixCache()
    loop, _, _ = make_loop(limits=SchedulerLimits(max_step_tokens=8), prefix_cache=cache)
    loop.add(make_request("a", list(range(20)), 2))
    for expected in (0, 0, 5):
        loop.step()
        assert len(cache) == expected


def test_a_failed_step_leaves_only_what_was_computed_before_it():
    loop, executor, events = make_loop(block_size=4, prefix_cache=PrefixCache())
    executor.fail_at = 2
    loop.add(make_request("a", list(range(8)), 5))
    loop.step()
    with pytest.raises(Exception, match="step 2 failed"):
        loop.step()
    loop.scheduler.check_integrity()
    assert (loop.scheduler.pool.num_used, loop.scheduler.pool.num_cached) == (0, 2)
    assert [e.reason for e in events if isinstance(e, RequestFinished)] == [FinishReason.ERROR]


@pytest.mark.kind("O05")
def test_five_hundred_requests_that_end_in_every_way_leave_no_block_used():
    for prefix_cache in (None, PrefixCache()):
        loop, executor, _ = make_loop(num_blocks=24, prefix_cache=prefix_cache)
        rng = random.Random(2)
        for i in range(500):
            prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 16))]
            stop = frozenset([rng.randrange(97)])
            loop.add(make_request(f"r{i}", prompt, 1 + i % 9, stop_token_ids=stop))
            if i % 10 == 9:
                executor.fail_at = loop.scheduler._step + 1
                with pytest.raises(Exception, match="failed"):
                    loop.step()
            loop.step()
            if i % 3 == 1:
                loop.abort(f"r{i}")
            if i % 5 == 2:
                loop.preempt(f"r{i}")
            if i % 50 == 49:
                run_to_end(loop)
                pool = loop.scheduler.pool
                assert pool.num_used == 0
                assert pool.num_free + pool.num_cached == 24
                assert prefix_cache is not None or pool.num_free == 24


def test_events_tell_how_many_blocks_are_cached():
    loop, _, events = make_loop(num_blocks=32, block_size=4, prefix_cache=PrefixCache())
    one_after_another(loop, events, list(range(9)), [70] * 3)
    steps = [event for event in events if isinstance(event, StepCompleted)]
    assert [step.kv_blocks_cached for step in steps] == [0, 0, 0, 2, 2, 2]
    assert all(step.kv_blocks_copied == 0 for step in steps)


# ── integrity checks can fail ────────────────────────────────────────────────────────────────


def filled_pool():
    cache = PrefixCache()
    pool = BlockPool(4, 2, prefix_cache=cache)
    chain = PrefixChain()
    blocks = pool.allocate(2)
    for block, tokens in zip(blocks, [(1, 2), (3, 4)], strict=True):
        cache.insert(chain, tokens, block)
    pool.release(reversed(blocks))
    pool.check_integrity([])
    return pool


@pytest.mark.parametrize(
    "damage",
    [
        lambda pool: pool._returned.append(0),
        lambda pool: setattr(pool, "_untouched", 3),
        lambda pool: pool._cached.pop(0),
        lambda pool: pool._references.update({0: 1}),
        lambda pool: pool.prefix_cache._by_key.clear(),
        lambda pool: pool.prefix_cache.forget(0),
        lambda pool: pool.prefix_cache.forget(1),
        lambda pool: setattr(pool, "_untouched", 1),
    ],
)
def test_damage_is_noticed(damage):
    pool = filled_pool()
    damage(pool)
    with pytest.raises(AssertionError):
        pool.check_integrity([])


def test_a_wrong_block_table_is_noticed():
    with pytest.raises(AssertionError, match="references"):
        filled_pool().check_integrity([[0]])
