"""POST /api/v1/models/import: the document of the engine, and hostile files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from engine.catalog.importing.imported import import_model
from engine.catalog.importing.report import import_document
from tests.engine.catalog.importing.released import RELEASED, released
from tests.webapp.fake_engine import FakeEngine
from webapp.app import create_app
from webapp.problems import MAX_BYTES, MEDIA_TYPE
from webapp.schemas.importing import ImportDocument
from webapp.settings import Settings

PATH = "/api/v1/models/import"
MARKER = "zqx Echo Marker"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = create_app(Settings(), FakeEngine())
    with TestClient(app, base_url="http://localhost") as test_client:
        yield test_client


@pytest.mark.parametrize("model_id", sorted(RELEASED))
def test_the_answer_is_the_engines_document(client: TestClient, model_id: str) -> None:
    config = released(model_id)
    answer = client.post(PATH, json={"config": config, "name": "mine"})
    assert answer.status_code == 200
    ImportDocument.model_validate(answer.json())
    assert answer.json() == import_document(import_model(config, "mine"))


def test_what_is_understood_is_told(client: TestClient) -> None:
    support = client.get(PATH).json()
    types = {entry["config"]["model_type"] for entry in RELEASED.values()}
    assert types <= set(support["model_types"])
    assert support["quantization_methods"] == sorted(support["quantization_methods"])
    assert {"fp8", "awq", "gptq", "mxfp4", "compressed-tensors"} <= {
        *support["quantization_methods"]
    }


HOSTILE: list[tuple[Any, str]] = [
    (None, "/config"),
    ([], "/config"),
    ("llama", "/config"),
    ({}, "/config/model_type"),
    ({"model_type": MARKER}, "/config/model_type"),
    (released("llama-3.1-8b", hidden_size=-1), "/config/hidden_size"),
    (released("llama-3.1-8b", hidden_size=True), "/config/hidden_size"),
    (released("llama-3.1-8b", num_hidden_layers=10**9), "/config/num_hidden_layers"),
    (released("llama-3.1-8b", vocab_size=1e300), "/config/vocab_size"),
    (released("llama-3.1-8b", moe_every=2), "/config/moe_every"),
    (released("llama-3.1-8b", **{MARKER: 2}), "/config"),
    (released("llama-3.1-8b", hidden_act=MARKER), "/config/hidden_act"),
    (released("gemma-3-27b", text_config=[MARKER]), "/config/text_config"),
    (released("llama-3.1-8b", quantization_config={"quant_method": MARKER}), "/config"),
]


@pytest.mark.parametrize(("config", "pointer"), HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_refused_names_its_key_and_repeats_nothing(
    client: TestClient, config: Any, pointer: str
) -> None:
    answer = client.post(PATH, json={"config": config})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert len(answer.content) <= MAX_BYTES
    assert MARKER not in answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)


@pytest.mark.parametrize("raw", ["NaN", "Infinity", "1e999", "9" * 400])
def test_numbers_that_json_does_not_have(client: TestClient, raw: str) -> None:
    body = json.dumps({"config": released("llama-3.1-8b", hidden_size=7)}).replace(
        ": 7,", f": {raw},"
    )
    assert raw in body
    answer = client.post(PATH, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
