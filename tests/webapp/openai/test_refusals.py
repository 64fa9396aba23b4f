"""Refusals under /v1 have OpenAI's shape and name the field; limits are those of the websocket."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import running_app, wait_for
from webapp.app import create_app
from webapp.settings import Settings

CHAT: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "Hi"}]}
COMPLETION: dict[str, Any] = {"model": "fake", "prompt": "Hi"}

REFUSED = [
    ("completions", {"suffix": "x"}, "suffix", "bad_value"),
    ("completions", {"echo": True}, "echo", "bad_value"),
    ("completions", {"best_of": 3}, "best_of", "bad_value"),
    ("completions", {"prompt": ["a", "b"]}, "prompt", "bad_value"),
    ("completions", {"prompt": [1, 2]}, "prompt", "bad_value"),
    ("completions", {"temperature": -1}, "temperature", "greater_than_equal"),
    ("completions", {"temperature": "hot"}, "temperature", "float_type"),
    ("completions", {"nothing_known": 1}, "nothing_known", "extra_forbidden"),
    ("completions", {"stop": ["a"] * 9}, "stop", "too_long"),
    ("completions", {"n": 99}, "n", "less_than_equal"),
    ("chat/completions", {"tools": [{"type": "function"}]}, "tools", "bad_value"),
    ("chat/completions", {"tool_choice": "required"}, "tool_choice", "bad_value"),
    (
        "chat/completions",
        {"response_format": {"type": "json_object"}},
        "response_format",
        "bad_value",
    ),
    ("chat/completions", {"audio": {"voice": "x"}}, "audio", "bad_value"),
    ("chat/completions", {"top_logprobs": 3}, None, "bad_combination"),
    ("chat/completions", {"messages": []}, "messages", "too_short"),
    (
        "chat/completions",
        {"messages": [{"role": "tool", "content": "x"}]},
        "messages.0.role",
        "literal_error",
    ),
    (
        "chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages.0.content",
        "bad_value",
    ),
]
HARMLESS: list[tuple[str, dict[str, Any]]] = [
    ("completions", {"echo": False, "best_of": 1, "suffix": None, "user": "u"}),
    ("completions", {"temperature": None, "stop": None, "stream": None, "logit_bias": None}),
    ("completions", {"metadata": {}, "store": False, "service_tier": "auto"}),
    (
        "chat/completions",
        {
            "tools": [],
            "functions": [],
            "tool_choice": "none",
            "response_format": {"type": "text"},
            "modalities": ["text"],
            "parallel_tool_calls": True,
            "reasoning_effort": "low",
            "verbosity": "low",
            "prompt_cache_key": "k",
            "prompt_cache_retention": "24h",
            "safety_identifier": "s",
            "stream_options": {"include_obfuscation": False},
        },
    ),
    (
        "chat/completions",
        {"messages": [{"role": "user", "name": "Ann", "content": "Hi", "tool_calls": []}]},
    ),
]


def body_of(path: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {**(COMPLETION if path == "completions" else CHAT), **fields}


@pytest.mark.parametrize(("path", "fields", "param", "code"), REFUSED)
def test_refused_by_name(
    client: TestClient, path: str, fields: dict[str, Any], param: str | None, code: str
) -> None:
    answer = client.post(f"/v1/{path}", json=body_of(path, fields))
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["code"] == code
    assert error["message"]


@pytest.mark.parametrize(("path", "fields"), HARMLESS)
def test_taken_and_not_used(client: TestClient, path: str, fields: dict[str, Any]) -> None:
    answer = client.post(f"/v1/{path}", json=body_of(path, fields))
    assert answer.status_code == 200, answer.text


def test_the_engines_refusal_names_the_field(client: TestClient, engine: FakeEngine) -> None:
    answer = client.post("/v1/completions", json={**COMPLETION, "model": "fake:"})
    assert answer.json()["error"]["code"] == "model_not_found"
    assert answer.status_code == 404
    answer = client.post("/v1/completions", json={**COMPLETION, "model": "gpt-4o"})
    assert answer.json()["error"]["param"] == "model"
    assert "gpt-4o" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("DELETE", "/v1/models", 405), ("GET", "/v1/completions", 405)],
)
def test_other_refusals_have_the_shape_too(
    client: TestClient, method: str, path: str, status: int
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "content-security-policy" in answer.headers


def test_bodies_are_json_and_bounded(client: TestClient) -> None:
    path, json_type = "/v1/completions", {"content-type": "application/json"}
    assert client.post(path, content=b"{}").status_code == 415
    answer = client.post(path, content=b'{"model": NaN}', headers=json_type)
    assert answer.status_code == 400
    huge = client.post(path, content=b" " * 300_000, headers=json_type)
    assert (huge.status_code, huge.json()["error"]["code"]) == (413, "body_too_large")


def test_pages_of_other_sites_may_not_ask(client: TestClient, engine: FakeEngine) -> None:
    answer = client.post(
        "/v1/completions", json=COMPLETION, headers={"origin": "https://evil.example"}
    )
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "origin_not_allowed"
    assert not engine.requests
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_below_a_path(engine: FakeEngine) -> None:
    app = create_app(Settings(root_path="/lab"), engine)
    with TestClient(app, base_url="http://localhost") as client:
        answer = client.post("/lab/v1/completions", json={**COMPLETION, "model": "x"})
        assert answer.json()["error"]["code"] == "model_not_found"
        assert client.post("/lab/v1/completions", json=COMPLETION).status_code == 200


def test_places_are_shared_with_the_websocket() -> None:
    engine = FakeEngine(endless=True, pause_s=0.01)
    settings = Settings(live_connections_per_address=2)
    with running_app(settings, engine) as server, server.connect():
        url = f"{server.url}/v1/completions"
        waiting = threading.Thread(
            target=lambda: httpx2.post(url, json={**COMPLETION, "max_tokens": 1}, timeout=20)
        )
        waiting.start()
        wait_for(lambda: len(engine.running) == 1)
        refused = httpx2.post(url, json=COMPLETION)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert refused.headers["retry-after"] == "1"
        engine.endless = False
        waiting.join(10)
        wait_for(lambda: len(server.app.state.live) == 1)
        assert httpx2.post(url, json=COMPLETION).status_code == 200
