"""Behind a proxy at /lab, whether or not the proxy strips the prefix."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import running_app
from webapp.app import create_app
from webapp.settings import Settings

SETTINGS = Settings(root_path="/lab")


@pytest.mark.parametrize("prefix", ["", "/lab"], ids=["stripped", "kept"])
def test_everything_answers(prefix: str) -> None:
    with TestClient(create_app(SETTINGS, FakeEngine()), base_url="http://localhost") as client:
        assert client.get(f"{prefix}/healthz").json() == {"status": "up"}
        assert client.get(f"{prefix}/api/v1/engine").status_code == 200
        page = client.get(f"{prefix}/")
        assert page.status_code == 200
        assert 'href="/static' not in page.text
        assert 'src="/static' not in page.text
        vendor = client.get(f"{prefix}/static/vendor/README.md")
        assert vendor.status_code == 200
        answer = client.get(f"{prefix}/nothing")
        assert answer.status_code == 404
        assert 'csp="/lab/csp-report"' in answer.headers["reporting-endpoints"]
        assert client.post(f"{prefix}/csp-report", json={}).status_code == 204
        schema = client.get(f"{prefix}/api/v1/openapi.json").json()
        assert schema["servers"] == [{"url": "/lab"}]
        with client.websocket_connect(f"ws://localhost{prefix}/ws/generate") as socket:
            assert socket.receive_json()["type"] == "hello"


@pytest.mark.parametrize("prefix", ["", "/lab"], ids=["stripped", "kept"])
def test_websocket_over_uvicorn(prefix: str) -> None:
    import websockets.sync.client

    with running_app(SETTINGS, FakeEngine()) as server:
        url = f"ws://127.0.0.1:{server.port}{prefix}/ws/generate"
        with websockets.sync.client.connect(url) as socket:
            assert json.loads(socket.recv(timeout=5))["type"] == "hello"


def test_a_longer_name_is_not_the_prefix() -> None:
    with TestClient(create_app(SETTINGS, FakeEngine()), base_url="http://localhost") as client:
        assert client.get("/laboratory/healthz").status_code == 404
