"""What the README says about the interface is taken as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
CALL = {"model": "llama-3.1-8b", "hardware": "h100-sxm"}
DEVICE = re.search(r"`(\{\"custom\": .*?\}\})`", README)


@pytest.mark.parametrize("group", ["speculation", "disaggregation", "offload"])
def test_nested_fields_of_simulate(client: TestClient, group: str) -> None:
    found = re.search(rf'`("{group}": \{{.*?\}})`', README, re.DOTALL)
    assert found is not None
    body: dict[str, Any] = {**CALL, **json.loads(f"{{{found[1]}}}")}
    answer = client.post("/api/v1/simulate", json=body)
    assert answer.status_code == 200, answer.text


def test_the_device_in_place(client: TestClient) -> None:
    assert DEVICE is not None
    for path in ("simulate", "estimate"):
        body = {**CALL, "hardware": json.loads(DEVICE[1])}
        assert client.post(f"/api/v1/{path}", json=body).status_code == 200


def test_calls_with_a_body(client: TestClient) -> None:
    calls = re.findall(r"curl -s http://\S+?(/api/\S+) .*? -d '(.*?)'", README, re.DOTALL)
    assert len(calls) == 2
    for path, body in calls:
        assert client.post(path, json=json.loads(body)).status_code == 200


def test_a_diagnosis(client: TestClient) -> None:
    found = re.search(r"`(\{\"cell\": .*?\]\})`", README)
    assert found is not None
    body = {**json.loads(found[1].replace("…", '""')), "cell": CALL}
    assert client.post("/api/v1/diagnose", json=body).status_code == 200


def test_paths_that_are_listed_exist(client: TestClient) -> None:
    described = client.get("/api/v1/openapi.json").json()["paths"]
    listed = set(re.findall(r"`(?:GET|POST) (/api/v1/\S+?)`", README)) - {"/api/v1/openapi.json"}
    probes = {path for path in described if path.startswith("/api/v1/probes/")}
    assert all(f"`{path.rpartition('/')[2]}`" in README for path in probes)
    assert listed - {"/api/v1/probes/{kind}"} <= set(described)
    assert "/api/v1/openapi.json" in README
