"""Words and ranks read from a tokenizer, and tokenizers that have none of bytes."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models

from engine.errors import InvalidRequest
from engine.inference.word_merges import WordMerges
from tests.engine.inference.tokenizers_for_tests import default_backend, llama2_backend


def test_words_and_ranks_are_those_of_the_file() -> None:
    backend, _ = default_backend()
    known = WordMerges(backend)
    assert known.words("It costs 42 €") == [b"It", b" costs", b" ", b"4", b"2", " €".encode()]
    pairs = list(known.ranks)
    assert list(known.ranks.values()) == list(range(len(pairs)))
    assert pairs[0] == (b" ", b"t")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_vocabulary_of_plain_text_merges_no_bytes(legacy: bool) -> None:
    known = WordMerges(llama2_backend(legacy=legacy))
    with pytest.raises(InvalidRequest) as refusal:
        known.words("the")
    assert (refusal.value.reason, refusal.value.field) == ("no_byte_merges", "text")


def test_a_tokenizer_without_merges_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="nothing to replay"):
        WordMerges(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
