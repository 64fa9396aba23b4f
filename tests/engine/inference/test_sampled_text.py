"""Penalties, biases and masks through the whole engine, against a loop without any of it."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.inference.sampling import SamplingParams
from engine.scheduling.request import Request
from tests.engine.inference.runs_for_tests import Run, random_ids, tiny_executor, tiny_reference

pytestmark = pytest.mark.usefixtures("one_thread")

PARAMS = SamplingParams(
    repetition_penalty=1.3,
    presence_penalty=1.0,
    frequency_penalty=0.5,
    logit_bias=((40, 2.0), (41, -100.0)),
)


def _slow(prompt: list[int], num_tokens: int, masked: frozenset[int], min_tokens: int) -> list[int]:
    """Greedy tokens by the documented order, each after a whole forward pass."""
    output: list[int] = []
    for step in range(num_tokens):
        logits = tiny_reference().logits([*prompt, *output])[-1].tolist()
        for token in {*prompt, *output}:
            factor = PARAMS.repetition_penalty
            logits[token] *= factor if logits[token] < 0 else 1 / factor
        for token, count in Counter(output).items():
            logits[token] -= count * PARAMS.frequency_penalty + PARAMS.presence_penalty
        for token, bias in PARAMS.logit_bias:
            logits[token] += bias
        allowed = set(range(len(logits))) - (masked if step < min_tokens else frozenset())
        output.append(max(sorted(allowed), key=logits.__getitem__))
    return output


@pytest.mark.parametrize("num_blocks", [64, 9])
def test_texts_are_those_of_the_documented_order(num_blocks: int) -> None:
    """With 9 blocks for three texts of 60 tokens, some are preempted on the way."""
    prompts = {f"r{i}": random_ids(12 + i, seed=30 + i) for i in range(3)}
    run = Run(tiny_executor(num_blocks=num_blocks))
    for name, prompt in prompts.items():
        run.add(name, prompt, 48, PARAMS)
    run.finish()
    for name, prompt in prompts.items():
        assert run.tokens(name) == _slow(prompt, 48, frozenset(), 0)


def test_stop_tokens_are_masked_until_there_are_min_tokens() -> None:
    prompt = random_ids(12, seed=30)
    stop = frozenset(_slow(prompt, 48, frozenset(), 0)[3:7])
    expected = _slow(prompt, 48, stop, 20)
    end = next(i for i, token in enumerate(expected) if i >= 20 and token in stop)
    run = Run(tiny_executor())
    run.executor.add_request("a", PARAMS)
    run.loop.add(Request("a", prompt, 48, stop, min_tokens=20))
    run.finish()
    assert run.tokens("a") == expected[: end + 1]
