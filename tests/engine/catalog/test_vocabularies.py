"""Stored vocabularies: the ids of tiktoken, and of the engine's own tokenizer for SmolLM2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.catalog import vocabularies
from engine.catalog.parallel_texts import parallel_texts
from engine.catalog.vocabularies import vocabulary, vocabulary_sources
from engine.errors import FileFormatError, UnknownName
from engine.inference.weights.gguf_checkpoint import open_gguf
from tests.engine.inference.tokenizers_for_tests import default_model_path

EXPECTED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "tiktoken_ids.json").read_text("utf-8")
)
SIZES = {"smollm2": 49_152, "r50k": 50_257, "cl100k": 100_277, "o200k": 200_019, "tekken": 131_072}


def ids(name: str, text: str) -> list[int]:
    return [token.id for token in vocabulary(name).encode(text)]


@pytest.mark.parametrize("name", EXPECTED["ids"])
def test_the_ids_of_tiktoken(name: str) -> None:
    for text, expected in zip(EXPECTED["texts"], EXPECTED["ids"][name], strict=True):
        assert ids(name, text) == expected, text


def test_smollm2_is_the_tokenizer_of_the_model_that_runs_here() -> None:
    tokenizer = open_gguf(default_model_path()).tokenizer()
    stored = vocabulary("smollm2")
    texts = [article for language in parallel_texts() for article in language.articles]
    for text in [*EXPECTED["texts"], *texts, "ab\x00\x04c", "1 22 333,4"]:
        assert ids("smollm2", text) == tokenizer.encode(text), text
    ranks = tokenizer.word_merges.ranks
    first = next(stored.rank(*pair) for pair in ranks)
    assert first is not None
    for pair, rank in ranks.items():
        assert stored.rank(*pair) == first + rank


@pytest.mark.parametrize("name", SIZES)
def test_sizes_and_sources(name: str) -> None:
    found = vocabulary(name)
    # Control tokens are published with a vocabulary and not stored here.
    assert SIZES[name] - 1_000 <= len(found) < SIZES[name]
    assert len(found) == found.about.tokens
    assert found.about.source
    assert found.about.license in ("MIT", "Apache-2.0")
    assert (vocabularies.DATA / "licenses").is_dir()


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("text", ["unhappiness", " unhappiness", "don't 世界 🙂", "aaaaaaaaa"])
def test_the_replay_ends_in_the_same_tokens(name: str, text: str) -> None:
    words = vocabulary(name).replay(text)
    assert [token.id for word in words for token in word.tokens] == ids(name, text)
    for word in words:
        assert b"".join(token.bytes for token in word.letters).decode()
        assert len(word.merges) == len(word.letters) - len(word.tokens)


def test_what_the_article_says_of_gpt_2() -> None:
    pieces = [token.bytes for token in vocabulary("r50k").encode("unhappiness")]
    assert pieces == [b"un", b"h", b"appiness"]
    assert ids("r50k", "How does inference work?") == [2437, 857, 32278, 670, 30]
    assert vocabulary("r50k").id_of(b" How") == 1374


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName) as refusal:
        vocabulary("none")
    assert refusal.value.field == "tokenizer"
    assert set(vocabulary_sources()) == set(SIZES)
    monkeypatch.setattr(vocabularies.lzma, "decompress", lambda data: b"\x01\x00a")
    with pytest.raises(FileFormatError):
        vocabulary.__wrapped__("r50k")


def test_parallel_texts_are_aligned() -> None:
    texts = parallel_texts()
    assert texts[0].tag == "en"
    assert len(texts) >= 12
    assert len({language.tag for language in texts}) == len(texts)
    assert all(len(language.articles) == 30 for language in texts)
    assert all(all(language.articles) for language in texts)
