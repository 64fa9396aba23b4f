"""Stored vocabularies over REST: as described, bounded, and the same numbers everywhere."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from engine.catalog.vocabularies import vocabulary, vocabulary_sources
from webapp.schemas import tokenizers as schemas

API = "/api/v1/tokenizers"


def answer_of(client: TestClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(f"{API}/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_list(client: TestClient) -> None:
    document = client.get(API).json()
    schemas.TokenizersDocument.model_validate(document)
    assert [entry["id"] for entry in document["tokenizers"]] == list(vocabulary_sources())


@pytest.mark.parametrize("name", vocabulary_sources())
def test_tokens_and_merges_agree(client: TestClient, name: str) -> None:
    body = {"text": "unhappiness 世界"}
    encoded = answer_of(client, f"{name}/encode", body)
    schemas.EncodedDocument.model_validate(encoded)
    assert "".join(token["bytes"] for token in encoded["tokens"]) == body["text"].encode().hex()
    merged = answer_of(client, f"{name}/merges", body)
    schemas.WordMergesDocument.model_validate(merged)
    assert [token for word in merged["words"] for token in word["tokens"]] == encoded["tokens"]
    for step in merged["words"][0]["merges"]:
        assert step["rank"] == vocabulary(name).id_of(bytes.fromhex(step["token"]["bytes"]))


def test_texts_are_compared_in_nfc(client: TestClient) -> None:
    composed = answer_of(client, "compare", {"text": "Tiếng Việt"})
    decomposed = answer_of(client, "compare", {"text": "Tiếng Việt"})
    schemas.ComparedDocument.model_validate(composed)
    assert composed == decomposed
    assert composed["counts"].keys() == vocabulary_sources().keys()


def test_languages(client: TestClient) -> None:
    one = client.get(f"{API}/languages?article=1").json()
    schemas.LanguagesDocument.model_validate(one)
    assert len(one["languages"]) >= 12
    for row in one["languages"]:
        assert row["counts"] == answer_of(client, "compare", {"text": row["text"]})["counts"]
    whole = client.get(f"{API}/languages?article=0").json()["languages"]
    found = {row["tag"]: row["relative"] for row in whole}
    assert set(found["en"].values()) == {1.0}
    # As counted with the tokenizers' own libraries over the same thirty articles.
    assert round(found["zh-Hans"]["smollm2"], 2) == 2.43
    assert round(found["my"]["o200k"], 1) == 4.2
    assert round(found["hi"]["tekken"], 2) == 1.82
    assert client.get(f"{API}/languages?article=31").status_code == 422


def test_training(client: TestClient) -> None:
    document = answer_of(client, "train", {"text": "low lower lowest low", "merges": 3})
    schemas.TrainingDocument.model_validate(document)
    assert "".join(document["words"]) == "low lower lowest low"
    assert document["tokens_before"] == len("low lower lowest low")
    assert [(m["left"], m["right"], m["count"]) for m in document["merges"][:2]] == [
        ("l", "o", 4),
        ("lo", "w", 4),
    ]
    assert document["tokens_after"] < document["tokens_before"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("none/encode", {"text": "a"}, 422),
        ("r50k/encode", {"text": ""}, 422),
        ("r50k/encode", {"text": "a" * 32_769}, 422),
        ("r50k/merges", {"text": "a" * 65}, 422),
        ("train", {"text": "a", "merges": 201}, 422),
        ("train", {"text": "a" * 4001}, 422),
        ("train", {"text": "a", "more": 1}, 422),
    ],
)
def test_refusals(client: TestClient, path: str, body: dict[str, Any], status: int) -> None:
    assert client.post(f"{API}/{path}", json=body).status_code == status
