"""Blocks that several requests read: forks and prefix hits give the tokens of unshared runs."""

from __future__ import annotations

import math
import random

import pytest

from engine.errors import StepFailed
from engine.inference.sampling import SamplingParams
from engine.scheduling.events import RequestStarted, StepCompleted
from engine.scheduling.plan import StepPlan
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.inference.runs_for_tests import (
    GREEDY,
    Run,
    alone,
    plan,
    random_ids,
    sequence,
    tiny_executor,
    tiny_reference,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def _seeded(count: int) -> dict[str, SamplingParams]:
    return {f"s{seed}": SamplingParams(1.0, top_p=0.95, seed=seed) for seed in range(count)}


@pytest.mark.parametrize("length", [1, 15, 16, 17, 33, 40])
def test_parallel_samples_are_those_of_unshared_runs(length: int) -> None:
    prompt = random_ids(length, seed=length)
    samples = _seeded(4)
    expected = {
        name: alone(tiny_executor(), prompt, 24, params) for name, params in samples.items()
    }
    run = Run(tiny_executor())
    first = samples.pop("s0")
    run.add("s0", prompt, 24, first, samples=samples)
    run.finish()
    assert {name: run.tokens(name) for name in expected} == expected
    assert len({tuple(tokens) for tokens in expected.values()}) == 4
    forked = [e.forked_tokens for e in run.events if isinstance(e, RequestStarted)]
    assert forked == [0] + [length - 1] * 3
    copied = sum(e.kv_blocks_copied for e in run.events if isinstance(e, StepCompleted))
    assert copied == (3 if (length - 1) % 16 else 0)
    run.scheduler.check_integrity()


def test_a_greedy_fork_in_mid_answer_says_the_same() -> None:
    prompt = random_ids(21, seed=4)
    expected = alone(tiny_executor(), prompt, 30)
    run = Run(tiny_executor())
    run.add("a", prompt, 30)
    for _ in range(9):
        run.loop.step()
    run.executor.add_request("b", GREEDY)
    run.loop.fork("a", "b")
    run.finish()
    assert run.tokens("a") == expected
    assert run.tokens("b") == expected[9:]


@pytest.mark.parametrize("length", [16, 17, 40, 64])
def test_prefix_hits_give_the_tokens_of_an_empty_cache(length: int) -> None:
    system = random_ids(length, seed=1)
    run = Run(tiny_executor(), prefix_cache=PrefixCache())
    for number in range(4):
        prompt = [*system, *random_ids(5, seed=10 + number)]
        params = SamplingParams(0.9, seed=number) if number % 2 else GREEDY
        run.add(f"r{number}", prompt, 20, params)
        run.finish()
        assert run.tokens(f"r{number}") == alone(tiny_executor(), prompt, 20, params)
        run.scheduler.check_integrity()
    hits = [e.cached_tokens for e in run.events if isinstance(e, RequestStarted)]
    assert hits == [0] + [length // 16 * 16] * 3


def test_a_hash_that_is_always_the_same_hands_nobody_anothers_blocks() -> None:
    """Only a block with the wanted tokens, after the wanted block, is a hit."""
    run = Run(tiny_executor(), prefix_cache=PrefixCache(lambda _previous, _tokens: 0))
    prompts = [random_ids(40, seed=seed) for seed in (1, 2, 1)]
    for number, prompt in enumerate(prompts):
        run.add(f"r{number}", prompt, 20)
        run.finish()
        assert run.tokens(f"r{number}") == alone(tiny_executor(), prompt, 20)
    hits = [e.cached_tokens for e in run.events if isinstance(e, RequestStarted)]
    # One block can be kept for one hash: the first prompt's first.
    assert hits == [0, 0, 16]


@pytest.mark.parametrize("seed", range(10))
def test_random_mixes_of_samples_hits_forks_chunks_and_preemptions(seed: int) -> None:
    """On a cache too small for all of them, with a prefix cache that also collides."""
    rng = random.Random(seed)
    cache = PrefixCache() if seed % 2 else PrefixCache(lambda previous, _tokens: previous % 7)
    limits = SchedulerLimits(
        max_running=rng.choice([2, 4, 8]), max_step_tokens=rng.choice([3, 17, 64, 512])
    )
    run = Run(tiny_executor(num_blocks=rng.choice([9, 14, 40])), limits, cache)
    system = random_ids(34, seed=seed)
    wanted: dict[str, tuple[list[int], int, SamplingParams]] = {}
    for number in range(4):
        name = f"r{number}"
        own = random_ids(rng.choice([1, 14, 30]), seed=100 * seed + number)
        prompt = [*system[: rng.choice([0, 16, 34])], *own]
        max_tokens = rng.choice([1, 16, 30])
        params = GREEDY if rng.random() < 0.4 else SamplingParams(0.9, 40, seed=rng.getrandbits(40))
        samples = {f"{name}-{i}": SamplingParams(0.9, seed=i) for i in range(rng.randrange(3))}
        for each, each_params in {name: params, **samples}.items():
            wanted[each] = (prompt, max_tokens, each_params)
        run.add(name, prompt, max_tokens, params, samples=samples)
        for _ in range(rng.randrange(9)):
            run.loop.step()
            run.scheduler.check_integrity()
        if rng.random() < 0.5:
            run.loop.preempt(rng.choice(sorted(wanted)))
    run.finish()
    run.scheduler.check_integrity()
    assert run.scheduler.pool.num_used == 0
    for name, (prompt, max_tokens, params) in wanted.items():
        assert run.tokens(name) == alone(tiny_executor(), prompt, max_tokens, params), name


def test_an_overflow_leaves_the_blocks_that_others_share_as_they_were() -> None:
    """A failing fork must not take the common prompt from those that had no part in its step."""
    prompt = random_ids(40, seed=3)
    executor = tiny_executor()
    for name in ("good", "bad"):
        executor.add_request(name, GREEDY)
    expected = int(tiny_reference().logits(prompt)[-1].argmax())
    executor.execute(plan(sequence(prompt[:39], table=[0, 1, 2], request_id="good")))
    for (layer,) in executor._cache.store.planes:
        layer[:, :, 5 * 16] = math.nan  # what the bad one computed for its own third block
    with pytest.raises(StepFailed):
        executor.execute(plan(sequence([1], start=33, table=[0, 1, 5], request_id="bad")))
    assert all(layer.isfinite().all() for (layer,) in executor._cache.store.planes)
    result = executor.execute(
        plan(sequence(prompt[39:], start=39, table=[0, 1, 2], request_id="good"))
    )
    assert result.samples[0].token_id == expected


def test_copies_are_made_before_anything_is_computed() -> None:
    prompt = random_ids(20, seed=6)
    executor = tiny_executor()
    for name in "ab":
        executor.add_request(name, GREEDY)
    executor.execute(plan(sequence(prompt, table=[4, 7], request_id="a")))
    parts = (
        sequence([11], start=20, table=[4, 7], request_id="a"),
        sequence([12], start=20, table=[4, 2], request_id="b"),
    )
    result = executor.execute(StepPlan(2, parts, copies=((7, 2),)))
    for sample, last in zip(result.samples, (11, 12), strict=True):
        logits = tiny_reference().logits([*prompt, last])[-1]
        assert sample.token_id == int(logits.argmax())
