"""The draft model's own cache: blocks are conserved, and being short of them changes no token."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch

from engine.errors import StepFailed, UnsupportedModel
from engine.inference.executor import TorchExecutor
from engine.inference.model_steps import StepLogits
from engine.inference.speculation import draft_model as module
from engine.inference.speculation.draft_model import DraftModel, check_same_tokens
from engine.inference.tokenizer import Tokenizer
from engine.inference.weights.tiny import tiny_random_checkpoint
from engine.scheduling.events import StepCompleted
from engine.scheduling.plan import StepPlan
from tests.engine.inference.runs_for_tests import (
    VOCABULARY,
    Run,
    alone,
    random_ids,
    tiny,
    tiny_executor,
)
from tests.engine.inference.speculation.drafting import DRAFT, drafts_of, repetitive

pytestmark = pytest.mark.usefixtures("one_thread")


def executor_with(draft: DraftModel) -> TorchExecutor:
    return TorchExecutor(tiny(), num_blocks=64, draft_model=draft)


def test_blocks_of_the_drafter_belong_to_live_requests_only() -> None:
    draft = DraftModel(tiny(seed=1), vocab_size=VOCABULARY, num_blocks=20)
    run = Run(executor_with(draft))
    for number in range(3):
        run.add(f"r{number}", random_ids(20, seed=number), 12, speculation=DRAFT)
    run.loop.step()
    run.loop.step()
    assert draft.num_used_blocks == 6
    run.loop.abort("r1")
    assert draft.num_used_blocks == 4
    run.finish()
    assert draft.num_used_blocks == 0


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 5])
def test_a_cache_too_small_for_all_gives_fewer_drafts_and_the_same_text(num_blocks: int) -> None:
    prompts = {f"r{i}": random_ids(6 + 9 * i, seed=i) for i in range(4)}
    draft = DraftModel(tiny(), vocab_size=VOCABULARY, num_blocks=num_blocks)
    run = Run(executor_with(draft))
    for name, prompt in prompts.items():
        run.add(name, prompt, 14, speculation=DRAFT)
    run.finish()
    for name, prompt in prompts.items():
        assert run.tokens(name) == alone(tiny_executor(), prompt, 14), name
    assert drafts_of(run, "r0")
    assert not (num_blocks < 3 and drafts_of(run, "r3"))
    for event in run.events:
        if isinstance(event, StepCompleted):
            # What is told is what ran: where no draft was made, none was verified.
            assert all(
                s.shape.new_tokens == 1 + s.shape.drafts
                for s in event.sequences
                if s.shape.prefix_tokens
            )
    assert draft.num_used_blocks == 0


def test_a_text_is_read_once_and_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 16)
    draft = DraftModel(tiny(), vocab_size=VOCABULARY, num_blocks=64)
    read: list[int] = []
    steps = draft._model.logits

    def counting(plan: StepPlan, num_layers: int | None = None) -> StepLogits:
        read.append(plan.num_tokens)
        return steps(plan, num_layers)

    monkeypatch.setattr(draft._model, "logits", counting)
    run = Run(executor_with(draft))
    run.add("a", random_ids(70, seed=3), 16, speculation=DRAFT)
    run.finish()
    assert all(event.num_accepted == 4 for event in drafts_of(run, "a"))
    # 71 known tokens when it drafts first; then each step reads the two tokens that are new to it
    # (the last draft, never read, and the one sampled after it), and three of its own drafts.
    assert read == [16, 16, 16, 16, 7, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1]


def test_a_text_longer_than_the_drafter_knows_gets_no_drafts() -> None:
    short = tiny(seed=1)
    limited = DraftModel(short, vocab_size=VOCABULARY, num_blocks=64)
    limited._transformer = copy.copy(short)
    limited._transformer.config = replace(short.config, max_context=24)
    run = Run(executor_with(limited))
    prompt = repetitive(15, 2)
    run.add("a", prompt, 30, speculation=DRAFT)
    run.finish()
    assert run.tokens("a") == alone(tiny_executor(), prompt, 30)
    drafted = drafts_of(run, "a")
    assert drafted
    assert sum(event.num_accepted + 1 for event in drafted) < 12


def test_a_drafter_that_overflows_leaves_nothing_behind() -> None:
    draft = DraftModel(tiny(), vocab_size=VOCABULARY, num_blocks=4)
    run = Run(executor_with(draft))
    run.add("a", random_ids(20, seed=1), 12, speculation=DRAFT)
    run.loop.step()
    run.loop.step()
    draft._cache.write(0, _not_a_number(), slice(0, 1))
    with pytest.raises(StepFailed):
        run.loop.step()
    assert draft._cache.not_finite(range(4)) == []
    assert draft.num_used_blocks == 0
    run.add("b", random_ids(20, seed=2), 12, speculation=DRAFT)
    run.finish()
    assert run.tokens("b") == alone(tiny_executor(), random_ids(20, seed=2), 12)


def _not_a_number() -> torch.Tensor:
    config = tiny().config
    return torch.full((1, 2, config.num_kv_heads, config.head_dim), math.nan)


def test_other_vocabularies_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="vocabulary"):
        DraftModel(tiny(), vocab_size=VOCABULARY + 1, num_blocks=4)


def test_tokenizers_with_other_words_are_refused() -> None:
    tokenizer = tiny_random_checkpoint().tokenizer()
    check_same_tokens(tokenizer, tiny_random_checkpoint(1).tokenizer())
    for others in (tokenizer.vocab_size - 1, tokenizer.vocab_size):
        with pytest.raises(UnsupportedModel, match="tokenizer"):
            check_same_tokens(tokenizer, _Backwards(tokenizer, others))  # type: ignore[arg-type]


class _Backwards:
    """As many tokens (or fewer), spelled backwards."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self.vocab_size = vocab_size

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokenizer.token_bytes(token_id)[::-1]
