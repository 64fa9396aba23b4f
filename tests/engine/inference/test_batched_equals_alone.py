"""Whoever shares the steps, a request gets the tokens that it would get alone (float32)."""

from __future__ import annotations

import random

import pytest
import torch

from engine.inference.sampling import SamplingParams
from engine.scheduling.scheduler import SchedulerLimits
from tests.engine.inference.runs_for_tests import (
    GREEDY,
    Run,
    alone,
    logits,
    new_cache,
    random_ids,
    sequence,
    tiny,
    tiny_executor,
    tiny_reference,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def test_eight_prompts_that_join_at_different_steps() -> None:
    prompts = {f"r{i}": random_ids(3 + 11 * i, seed=i) for i in range(8)}
    expected = {name: alone(tiny_executor(), ids, 32) for name, ids in prompts.items()}
    run = Run(tiny_executor(num_blocks=128))
    for number, (name, ids) in enumerate(prompts.items()):
        run.add(name, ids, 32)
        for _ in range(number % 3 + 1):
            run.loop.step()
    run.finish()
    assert {name: run.tokens(name) for name in prompts} == expected


@pytest.mark.parametrize("seed", range(12))
def test_random_mixes_of_arrivals_chunks_preemptions_and_aborts(seed: int) -> None:
    """Twelve programs of five requests each: 60 mixes, on a cache too small for all of them."""
    rng = random.Random(seed)
    limits = SchedulerLimits(
        max_running=rng.choice([2, 3, 5]), max_step_tokens=rng.choice([1, 5, 17, 64, 512])
    )
    run = Run(tiny_executor(num_blocks=rng.choice([9, 12, 40])), limits)
    wanted = {}
    for number in range(5):
        name = f"r{number}"
        prompt = random_ids(rng.choice([1, 2, 15, 16, 17, 33, 60]), seed=100 * seed + number)
        max_tokens = rng.choice([1, 2, 16, 40])
        params = GREEDY if rng.random() < 0.6 else SamplingParams(0.9, 40, seed=rng.getrandbits(40))
        wanted[name] = (prompt, max_tokens, params)
        run.add(name, prompt, max_tokens, params)
        for _ in range(rng.randrange(6)):
            run.loop.step()
            run.scheduler.check_integrity()
        if rng.random() < 0.2:
            run.loop.abort(f"r{rng.randrange(number + 1)}")
    run.finish()
    run.scheduler.check_integrity()
    assert run.scheduler.pool.num_used == 0
    for name, (prompt, max_tokens, params) in wanted.items():
        expected = alone(tiny_executor(), prompt, max_tokens, params)
        got = run.tokens(name)
        assert got == expected[: len(got)], name
        aborted = run.scheduler.get(name) is None and len(got) < len(expected)
        assert len(got) == len(expected) or aborted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", range(30))
def test_logits_of_ragged_steps_equal_full_recomputation(seed: int, dtype: torch.dtype) -> None:
    """One step of any mix: decode rows of all lengths, chunks with and without a prefix."""
    rng = random.Random(1_000 + seed)
    model, cache = tiny(dtype), new_cache(tiny(dtype), 128)
    blocks = list(range(128))
    if seed % 2:
        rng.shuffle(blocks)
    parts, texts = [], {}
    for number in range(rng.randrange(1, 10)):
        name = f"r{number}"
        prefix = rng.choice([0, 0, 1, 15, 16, 31, 100])
        new = 1 if rng.random() < 0.6 else rng.choice([2, 16, 33, 130])
        table = [blocks.pop() for _ in range(-(-(prefix + new) // 16))]
        texts[name] = random_ids(prefix + new, seed=rng.getrandbits(30))
        head, tail = texts[name][:prefix], texts[name][prefix:]
        if head:
            logits(model, cache, sequence(head, table=table, request_id=name))
        parts.append(sequence(tail, start=prefix, table=table, request_id=name))
    for name, row in logits(model, cache, *parts).items():
        exact = tiny_reference().logits(texts[name])[-1]
        difference = (row - exact).abs().max().item()
        assert difference < (1e-3 if dtype is torch.float32 else 0.7), name
