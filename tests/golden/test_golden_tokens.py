"""The real model against recorded answers of transformers: float32, greedy, token by token.

``golden_open.json`` holds ten cases from transformers on the same file dequantised to float32.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.inference.executor import TorchExecutor
from engine.inference.kv_cache.make import make_cache
from engine.inference.lane_settings import KVSettings
from engine.inference.model.batch import build_batch
from engine.inference.model.load import load_transformer
from engine.inference.model.transformer import Transformer
from engine.inference.weights.checkpoint import Checkpoint
from engine.inference.weights.default import find_default_model
from engine.scheduling.plan import Phase, ScheduledSequence, StepPlan
from tests.engine.inference.runs_for_tests import CPU, Run

_GOLDEN = json.loads((Path(__file__).parent / "golden_open.json").read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = _GOLDEN["cases"]
CASE = pytest.mark.parametrize("case", CASES, ids=[f"case {i}" for i in range(len(CASES))])


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    source = find_default_model()
    assert not source.random_weights, source.provenance
    return source.open()


@pytest.fixture(scope="module")
def transformer(checkpoint: Checkpoint) -> Transformer:
    return load_transformer(checkpoint, torch.float32, CPU)


@pytest.fixture(scope="module")
def executor(checkpoint: Checkpoint, transformer: Transformer) -> TorchExecutor:
    return TorchExecutor(transformer, num_blocks=128, num_tokens=checkpoint.tokenizer().vocab_size)


@torch.inference_mode()
def _first_logprobs(transformer: Transformer, prompt: list[int]) -> torch.Tensor:
    """Log-probabilities of the first token after a prompt, ``[vocabulary]``."""
    cache = make_cache(
        transformer.config, KVSettings(), num_blocks=4, dtype=transformer.dtype, device=CPU
    )
    sequence = ScheduledSequence("a", Phase.PREFILL, 0, prompt, (0, 1, 2, 3), True)
    batch = build_batch(StepPlan(1, (sequence,)), cache)
    return transformer.logits(batch, cache)[0].log_softmax(-1)


@CASE
def test_prompt_tokens(case: dict[str, Any], checkpoint: Checkpoint) -> None:
    tokenizer = checkpoint.tokenizer()
    if "messages" in case:
        assert tokenizer.encode_chat(case["messages"]) == case["prompt_token_ids"]
    else:
        assert tokenizer.encode(case["prompt"]) == case["prompt_token_ids"]


@CASE
def test_first_step(case: dict[str, Any], transformer: Transformer) -> None:
    logprobs = _first_logprobs(transformer, case["prompt_token_ids"])
    top = logprobs.topk(5)
    assert top.indices.tolist() == [token for token, _ in case["first_step_top5_logprobs"]]
    expected = [logprob for _, logprob in case["first_step_top5_logprobs"]]
    assert top.values.tolist() == pytest.approx(expected, abs=2e-3)


@CASE
def test_all_tokens_alone(case: dict[str, Any], executor: TorchExecutor) -> None:
    run = _run(executor, [case])
    run.finish()
    assert run.tokens("0") == case["token_ids"]


def test_all_tokens_of_all_cases_together(executor: TorchExecutor) -> None:
    """Each joins one step after the one before, so no two are ever in the same place."""
    run = _run(executor, CASES, steps_between=1)
    run.finish()
    for number, case in enumerate(CASES):
        assert run.tokens(str(number)) == case["token_ids"], number


def test_text(checkpoint: Checkpoint) -> None:
    tokenizer = checkpoint.tokenizer()
    for case in CASES:
        assert tokenizer.decode(case["token_ids"], skip_special=False) == case["text"]


def test_bfloat16_stays_close_to_float32(checkpoint: Checkpoint, transformer: Transformer) -> None:
    bfloat16 = load_transformer(checkpoint, torch.bfloat16, CPU)
    divergences = []
    for case in CASES:
        exact = _first_logprobs(transformer, case["prompt_token_ids"])
        rounded = _first_logprobs(bfloat16, case["prompt_token_ids"])
        divergences.append(float((exact.exp() * (exact - rounded)).sum()))
    assert sum(divergences) / len(divergences) < 0.004
    assert max(divergences) < 0.02


def _run(executor: TorchExecutor, cases: list[dict[str, Any]], steps_between: int = 0) -> Run:
    run = Run(executor)
    stop = frozenset(executor._transformer.config.eos_token_ids)
    for number, case in enumerate(cases):
        run.add(str(number), case["prompt_token_ids"], 32, stop=stop)
        for _ in range(steps_between):
            run.loop.step()
    return run
