"""One server for all hostile input: it has to survive every test."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from fastapi.testclient import TestClient

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp, running_app
from webapp.app import create_app
from webapp.settings import Settings

# The corpus sends far more messages than a person would.
SETTINGS = Settings(live_messages_per_s=1000)


@pytest.fixture(scope="session")
def hostile_server() -> Iterator[LiveApp]:
    with running_app(SETTINGS, FakeEngine()) as server:
        yield server


@pytest.fixture(scope="session", params=["in process", "uvicorn"])
def http(request: pytest.FixtureRequest, hostile_server: LiveApp) -> Iterator[httpx2.Client]:
    """The same requests against the bare app and against uvicorn on a socket."""
    if request.param == "uvicorn":
        with httpx2.Client(base_url=hostile_server.url, timeout=20) as client:
            yield client
    else:
        app = create_app(SETTINGS, FakeEngine())
        with TestClient(app, base_url="http://localhost") as client:
            yield client
