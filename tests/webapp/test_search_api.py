"""Searches and diagnoses over HTTP: the engine's documents, and faults by their place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from engine.simulator.diagnosis.diagnose import diagnose
from engine.simulator.diagnosis.document import diagnosis_document, read_observations
from engine.simulator.search.cheapest import cheapest
from engine.simulator.search.search_document import read_requirement, search_document
from webapp.schemas.cheapest import SearchDocument
from webapp.schemas.diagnose import DiagnosisDocument

CELL = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "prompt_tokens": 1000}
NOWHERE = {**CELL, "model": "no-such"}
IN_PLACE = {
    "model": {
        "config": {
            "model_type": "llama",
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 22,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "vocab_size": 32_000,
            "max_position_embeddings": 2048,
        }
    },
    "hardware": {
        "custom": {"memory_gb": 80, "bandwidth_gb_s": 3350, "dense_tflops": {"bf16": 989.4}}
    },
}
LOAD: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "rate": 2,
    "prompt_tokens": 500,
    "output_tokens": 50,
    "ttft": 0.5,
    "itl": 0.03,
    "hardware": ["h100-sxm", "l4"],
    "devices": [1, 2],
}


def as_json(document: object) -> Any:
    return json.loads(json.dumps(document))


def test_a_search_is_the_engines_with_its_finalist_confirmed(client: TestClient) -> None:
    answer = client.post("/api/v1/search", json=LOAD)
    assert answer.status_code == 200
    document = answer.json()
    SearchDocument.model_validate(document)
    run = document["best"][0].pop("confirmed")
    assert run["kind"] == "predicted"
    assert run["keeps"] is (run["ttft"] <= 0.5 and run["itl"] <= 0.03)
    expected = as_json(search_document(cheapest(read_requirement(LOAD)), []))
    # Whole numbers stay whole in the question that is sent on.
    expected["requirement"]["rate"] = document["requirement"]["rate"]
    assert document == expected


@pytest.mark.parametrize("cell", [CELL, IN_PLACE], ids=["named", "in-place"])
@pytest.mark.parametrize(
    "observations",
    [[{"ttft": 1.0, "itl": 0.01}], [{"ttft": 1.0}, {"itl": 0.02, "batch": 8}]],
    ids=["thread", "process"],
)
def test_a_diagnosis_is_the_engines(
    client: TestClient, observations: list[Any], cell: dict[str, Any]
) -> None:
    body = {"cell": cell, "observations": observations}
    answer = client.post("/api/v1/diagnose", json=body)
    assert answer.status_code == 200
    DiagnosisDocument.model_validate(answer.json())
    assert answer.json() == as_json(diagnosis_document(diagnose(read_observations(body))))


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("search", {}, "/model"),
        ("search", {**LOAD, "rate": 0}, "/rate"),
        ("search", {**LOAD, "model": "no-such"}, "/model"),
        ("search", {**LOAD, "hardware": ["h100-sxm", "no-such"]}, "/hardware"),
        ("search", {**LOAD, "hardware": []}, "/hardware"),
        ("search", {**LOAD, "output_tokens": 1}, "/output_tokens"),
        ("search", {**LOAD, "weights": ["int3"]}, "/weights"),
        ("search", {**LOAD, "engine": "no-such"}, "/engine"),
        ("search", {**LOAD, "finalists": 9}, "/finalists"),
        ("diagnose", {}, "/cell"),
        ("diagnose", {"cell": CELL, "observations": []}, "/observations"),
        ("diagnose", {"cell": CELL, "observations": [{}]}, "/observations/0/ttft"),
        ("diagnose", {"cell": CELL, "observations": [{"ttft": 0}]}, "/observations/0/ttft"),
        (
            "diagnose",
            {"cell": {**CELL, "model": {"config": {}}}, "observations": [{"ttft": 1}]},
            "/cell/model/config/model_type",
        ),
        (
            "diagnose",
            {"cell": {**CELL, "model": "x"}, "observations": [{"ttft": 1}]},
            "/cell/model",
        ),
        (
            "diagnose",
            {"cell": CELL, "observations": [{"itl": 1, "output_tokens": 1}]},
            "/observations/0/output_tokens",
        ),
    ],
)
def test_wrong_values_are_named(
    client: TestClient, path: str, body: dict[str, Any], pointer: str
) -> None:
    answer = client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == 422
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
