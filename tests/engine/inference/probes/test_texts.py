"""Questions to the tokenizer alone: without weights, and as the fast way answers them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidRequest
from engine.inference.probes.desk import ProbeDesk
from engine.inference.probes.limits import MAX_DECODED_IDS, MAX_MERGED_CHARS
from engine.inference.probes.texts import TextDesk
from engine.inference.tokenizer import Tokenizer
from engine.inference.weights.gguf_checkpoint import open_gguf
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.tokenizers_for_tests import default_model_path

TEXTS = ["unhappiness", " unhappiness", "don't  stop\n", "日本語 🙂🙂", "a1b22", "x" * 64]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_gguf(default_model_path()).tokenizer()


@pytest.fixture(scope="module")
def desk(tokenizer: Tokenizer) -> TextDesk:
    return TextDesk(tokenizer)


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_of_a_text(desk: TextDesk, tokenizer: Tokenizer, text: str) -> None:
    answer: dict[str, Any] = desk.answer("tokenize", {"text": text})
    tokens = answer["tokens"]
    assert [token["id"] for token in tokens] == tokenizer.encode_prompt(text)
    assert b"".join(bytes.fromhex(token["bytes"]) for token in tokens) == text.encode()
    assert "".join(token["text"] for token in tokens) + answer["tail"] == answer["text"] == text
    assert (answer["characters"], answer["utf8_bytes"]) == (len(text), len(text.encode()))
    assert not any(token["special"] for token in tokens)
    assert answer["milliseconds"] > 0
    back = desk.answer("detokenize", {"ids": [token["id"] for token in tokens]})
    assert {**back, "milliseconds": 0} == {**answer, "milliseconds": 0}


def test_a_character_is_certain_with_its_last_byte(desk: TextDesk) -> None:
    ids = [token["id"] for token in _tokens(desk.answer("tokenize", {"text": "é🙂"}))]
    cut: dict[str, Any] = desk.answer("detokenize", {"ids": ids[:-1]})
    assert cut["text"].endswith("�") or len(ids) == 1
    texts = [token["text"] for token in _tokens(desk.answer("detokenize", {"ids": ids}))]
    assert "".join(texts) == "é🙂"
    assert "�" not in "".join(texts)


def test_messages_show_their_markers() -> None:
    tokenizer = tiny_random_checkpoint().tokenizer()
    desk = TextDesk(tokenizer)
    messages = [{"role": "user", "content": "Hi <|im_end|>"}]
    answer = desk.answer("tokenize", {"messages": messages})
    ids = [token["id"] for token in _tokens(answer)]
    assert ids == tokenizer.encode_chat(messages)
    special = [token["id"] for token in _tokens(answer) if token["special"]]
    assert special == [token for token in ids if token in tokenizer.control_ids]
    asked = desk.answer("tokenize", {"messages": messages, "add_generation_prompt": False})
    assert len(_tokens(asked)) < len(ids)
    hidden = desk.answer("detokenize", {"ids": ids, "skip_special": True})
    assert hidden["text"] == tokenizer.decode(ids)


@pytest.mark.parametrize("text", TEXTS)
def test_merges_end_in_the_tokens_of_the_fast_way(
    desk: TextDesk, tokenizer: Tokenizer, text: str
) -> None:
    answer: dict[str, Any] = desk.answer("merges", {"text": text})
    found = [token["id"] for word in answer["words"] for token in word["tokens"]]
    assert found == tokenizer.encode(text)
    for word in answer["words"]:
        parts = [token["bytes"] for token in word["start"]]
        assert all(len(part) == 2 for part in parts)
        for step in word["merges"]:
            at = step["at"]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            assert parts[at] == step["token"]["bytes"]
            assert 0 <= step["rank"] < answer["num_merges"]
        assert parts == [token["bytes"] for token in word["tokens"]]


@pytest.mark.parametrize(
    ("kind", "arguments", "field"),
    [
        ("tokenize", {}, "messages"),
        ("tokenize", {"text": 5}, "text"),
        ("tokenize", {"text": ""}, "prompt"),
        ("tokenize", {"text": "a", "messages": []}, "text"),
        ("tokenize", {"text": "a", "add_special": 1}, "add_special"),
        ("tokenize", {"messages": [{"role": "user"}]}, "messages"),
        ("tokenize", {"text": "a", "k": 1}, "k"),
        ("detokenize", {"ids": []}, "ids"),
        ("detokenize", {"ids": [1] * (MAX_DECODED_IDS + 1)}, "ids"),
        ("detokenize", {"ids": [-1]}, "ids"),
        ("detokenize", {"ids": [10**9]}, "ids"),
        ("merges", {"text": ""}, "text"),
        ("merges", {"text": "a" * (MAX_MERGED_CHARS + 1)}, "text"),
    ],
)
def test_refusals(desk: TextDesk, kind: str, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        desk.answer(kind, arguments)
    assert refusal.value.field == field


def test_no_weights_are_read_and_probes_take_texts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tiny_random_checkpoint()
    desk = ProbeDesk(checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(ProbeDesk, "model", property(lambda self: pytest.fail("loads the model")))
        ids = [token["id"] for token in _tokens(desk.answer("tokenize", {"text": "some text"}))]
    told = desk.answer("next-token", {"text": "some text", "position": 0})
    assert told["tokens"] == [
        {"id": token, "piece": checkpoint.tokenizer().piece(token)} for token in ids
    ]
    del told["tokens"]
    assert told == desk.answer("next-token", {"token_ids": ids, "position": 0})


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"text": "a", "token_ids": [1]}, "text"),
        ({"text": "a " * 900}, "text"),
        ({"messages": [{"role": "user", "content": "a " * 900}]}, "messages"),
        ({"token_ids": [1] * 769}, "token_ids"),
    ],
)
def test_a_text_is_named_where_it_is_at_fault(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        ProbeDesk(tiny_random_checkpoint()).answer("overview", arguments)
    assert refusal.value.field == field


def _tokens(document: dict[str, Any]) -> list[dict[str, Any]]:
    return document["tokens"]
