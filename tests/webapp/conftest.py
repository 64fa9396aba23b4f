"""Clients and servers over a fake engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp, running_app
from webapp.app import create_app
from webapp.settings import Settings

ORIGIN = "http://localhost"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def client(engine: FakeEngine, settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings, engine), base_url=ORIGIN) as test_client:
        yield test_client


@pytest.fixture
def server(engine: FakeEngine, settings: Settings) -> Iterator[LiveApp]:
    """The same app behind uvicorn on a real socket."""
    with running_app(settings, engine) as live_app:
        yield live_app
