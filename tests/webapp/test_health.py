"""Process up, engine ready or not and why."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.webapp.fake_engine import FakeEngine


def test_up(client: TestClient) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "up"})


def test_ready(client: TestClient) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "state": "ready", "reason": ""}


@pytest.mark.parametrize("state", ["starting", "restarting", "unresponsive", "stopped"])
def test_not_ready(client: TestClient, engine: FakeEngine, state: str) -> None:
    engine.state = state
    engine.reason = "the model is loading"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {
        "status": "not_ready",
        "state": state,
        "reason": "the model is loading",
    }
    assert client.get("/healthz").status_code == 200


def test_engine_document(client: TestClient, engine: FakeEngine) -> None:
    document = client.get("/api/v1/engine").json()
    assert document["state"] == "ready"
    assert document["info"]["model_name"] == "fake"
    assert [lane["dtype"] for lane in document["info"]["lanes"]] == ["float32", "bfloat16"]
    engine.state, engine.info, engine.restarts = "restarting", None, 1
    document = client.get("/api/v1/engine").json()
    assert (document["state"], document["restarts"], document["info"]) == ("restarting", 1, None)


@pytest.mark.parametrize(("state", "status"), [("ready", 200), ("starting", 503)])
def test_head_is_get_without_a_body(
    client: TestClient, engine: FakeEngine, state: str, status: int
) -> None:
    engine.state = state
    for path, expected in (("/healthz", 200), ("/readyz", status)):
        head, get = client.head(path), client.get(path)
        assert head.status_code == get.status_code == expected
        assert head.headers["content-type"] == get.headers["content-type"]
        assert head.headers["content-length"] == get.headers["content-length"]
