"""A client of OpenAI's own library at a server over a fake engine."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.webapp.live_server import LiveApp


@pytest.fixture
def program(server: LiveApp) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client
