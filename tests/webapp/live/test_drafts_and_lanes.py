"""Drafts share the time of their step; a lane may be closed before its request is told of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from engine.catalog.this_machine import save_calibration
from engine.inference.messages import Accepted, Drafted, Generate, Message, Opening, Step
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live.test_generation import URL, run
from tests.webapp.test_prediction import CALIBRATION


class DraftingEngine(FakeEngine):
    """Each decode step verifies two drafts and accepts them; the tokens themselves do not matter
    here."""

    async def generate(self, request: Generate) -> AsyncGenerator[Message, None]:
        async for message in super().generate(request):
            yield message
            if isinstance(message, Step) and message.phase == "decode":
                yield Drafted(request.request_id, (97, 97), ("a", "a"), 2)


class ForgetfulEngine(FakeEngine):
    """Accepts in a lane that it does not list."""

    async def generate(self, request: Generate) -> AsyncGenerator[Message, None]:
        async for message in super().generate(request):
            yield replace(message, lane="gone") if isinstance(message, Accepted) else message


class PreparingEngine(FakeEngine):
    """Says how far the lane is before it accepts."""

    async def generate(self, request: Generate) -> AsyncGenerator[Message, None]:
        yield Opening(request.request_id, "int4-g32-awq", 1)
        yield Opening(request.request_id, "int4-g32-awq", 0, "quantizing", 0.5, "layers.3")
        async for message in super().generate(request):
            yield message


@pytest.fixture
def engine(request: pytest.FixtureRequest, state_dir: object) -> FakeEngine:
    save_calibration(CALIBRATION)
    return request.param()


@pytest.mark.parametrize("engine", [DraftingEngine], indirect=True)
def test_accepted_drafts_lower_the_predicted_mean(client: TestClient, engine: FakeEngine) -> None:
    with client.websocket_connect(URL) as socket:
        socket.receive_json()
        events = run(socket, prompt="abcd")
    steps = [event["predicted_ms"] for event in events if event["type"] == "step"]
    assert events[-1]["predicted_ttft_ms"] == pytest.approx(steps[0])
    assert events[-1]["predicted_itl_ms"] == pytest.approx(sum(steps[1:]) / (3 * 3))


@pytest.mark.parametrize("engine", [ForgetfulEngine], indirect=True)
def test_a_lane_that_is_closed_already_is_null(client: TestClient, engine: FakeEngine) -> None:
    with client.websocket_connect(URL) as socket:
        socket.receive_json()
        events = run(socket, prompt="ab")
    assert events[0]["lane"] is None
    steps = [event for event in events if event["type"] == "step"]
    assert all(step["predicted_ms"] is None and step["kv_bytes"] is None for step in steps)
    assert events[-1]["text"] == "ab"


@pytest.mark.parametrize("engine", [PreparingEngine], indirect=True)
def test_who_waits_for_a_lane_hears_how_far_it_is(client: TestClient, engine: FakeEngine) -> None:
    with client.websocket_connect(URL) as socket:
        socket.receive_json()
        events = run(socket, prompt="ab")
    told = [
        [event[name] for name in ("lane", "ahead", "stage", "share", "part")]
        for event in events
        if event["type"] == "opening"
    ]
    assert told == [
        ["int4-g32-awq", 1, "waiting", 0.0, ""],
        ["int4-g32-awq", 0, "quantizing", 0.5, "layers.3"],
    ]
