"""The tiny random model is the same everywhere, quick to make, and lively."""

from __future__ import annotations

import hashlib
import time

import numpy as np
import pytest

from engine.inference.weights.tiny import TINY_VOCAB_SIZE, tiny_random_checkpoint
from tests.engine.inference.llama_for_tests import llama_config, llama_name


def test_the_same_seed_gives_the_same_weights():
    a, b, other = tiny_random_checkpoint(3), tiny_random_checkpoint(3), tiny_random_checkpoint(4)
    for name in a.names:
        np.testing.assert_array_equal(a.tensor(name), b.tensor(name))
    assert not np.array_equal(a.tensor("layers.0.q"), other.tensor("layers.0.q"))


def test_the_weights_are_the_same_on_every_machine():
    """numpy promises its generators' streams across platforms; this notices if that changes."""
    checkpoint = tiny_random_checkpoint()
    digest = hashlib.sha256()
    for name in checkpoint.names:
        digest.update(np.round(checkpoint.tensor(name), 4).astype("<f4").tobytes())
    assert digest.hexdigest() == "85ca1dfdfcff38484350bbe482a737bc05fa668a39abfcfa4ffd1a756d61ea88"


@pytest.mark.parametrize("tied", [True, False])
def test_its_numbers(tied):
    checkpoint = tiny_random_checkpoint(tied_embeddings=tied)
    config = checkpoint.config
    assert (config.num_layers, config.hidden_size, config.vocab_size) == (2, 64, TINY_VOCAB_SIZE)
    assert (config.num_attention_heads, config.num_kv_heads) == (4, 2)
    assert ("lm_head" in checkpoint.names) is not tied
    assert checkpoint.file_bytes == 4 * sum(checkpoint.tensor(n).size for n in checkpoint.names)
    assert checkpoint.source_format == "F32"


def test_tensors_are_copies():
    checkpoint = tiny_random_checkpoint()
    checkpoint.tensor("embed")[:] = 0
    assert checkpoint.tensor("embed").any()


def test_the_tokenizer_fills_the_vocabulary_and_shortens_english():
    tokenizer = tiny_random_checkpoint().tokenizer()
    assert tokenizer.vocab_size == TINY_VOCAB_SIZE
    assert tokenizer.unknown_ids(TINY_VOCAB_SIZE) == ()
    assert {tokenizer.token_bytes(i) for i in range(3, 259)} == {bytes([b]) for b in range(256)}
    assert [tokenizer.piece(i) for i in tokenizer.encode(" the people of the world")] == [
        " the", " people", " of", " the", " world",
    ]  # fmt: skip


def test_padding_rows_are_known_as_such():
    checkpoint = tiny_random_checkpoint(padding_rows=6)
    assert checkpoint.config.vocab_size == TINY_VOCAB_SIZE + 6
    assert checkpoint.tensor("embed").shape[0] == TINY_VOCAB_SIZE + 6
    assert checkpoint.tokenizer().unknown_ids(TINY_VOCAB_SIZE + 6) == tuple(range(512, 518))


def test_greedy_answers_vary():
    """As transformers runs the same weights: many different tokens, each chosen clearly."""
    import torch
    from transformers import LlamaForCausalLM

    checkpoint = tiny_random_checkpoint()
    model = LlamaForCausalLM(llama_config(checkpoint.config)).eval()
    model.load_state_dict(
        {llama_name(n): torch.from_numpy(checkpoint.tensor(n)) for n in checkpoint.names}
    )
    ids = checkpoint.tokenizer().encode("The people of the world")
    margins: list[float] = []
    with torch.no_grad():
        for _ in range(40):
            logits = model(torch.tensor([ids])).logits[0, -1]
            best = logits.topk(2).values
            margins.append(float(best[0] - best[1]))
            ids.append(int(logits.argmax()))
    assert 1.0 < float(logits.std()) < 10.0
    assert len(set(ids[-40:])) >= 12
    assert min(margins) > 1e-4


@pytest.mark.serial
def test_it_is_made_quickly():
    tiny_random_checkpoint().tokenizer()
    start = time.process_time()
    tiny_random_checkpoint().tokenizer()
    assert time.process_time() - start < 1
