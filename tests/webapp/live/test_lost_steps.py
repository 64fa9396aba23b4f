"""Not every step arrives from the engine: what is told of the others stays true."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

import pytest
from fastapi.testclient import TestClient

from engine.catalog.this_machine import save_calibration
from engine.inference.messages import Generate, Message, Step
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live.test_generation import URL, run
from tests.webapp.test_prediction import CALIBRATION


@dataclass
class LossyEngine(FakeEngine):
    """Leaves out some steps, as the engine's client does when their reader is slow."""

    lost: frozenset[int] = frozenset()

    async def generate(self, request: Generate) -> AsyncGenerator[Message, None]:
        dropped = 0
        async for message in super().generate(request):
            if not isinstance(message, Step):
                yield message
            elif message.step in self.lost:
                dropped += 1
            else:
                yield replace(message, dropped=dropped)
                dropped = 0


@pytest.fixture
def engine(state_dir: object) -> LossyEngine:
    save_calibration(CALIBRATION)
    return LossyEngine()


@pytest.mark.parametrize("lost", [{1, 2}, {0}, {0, 3, 4}])
def test_lost_steps_are_counted_and_make_the_sums_unknown(
    client: TestClient, engine: LossyEngine, lost: set[int]
) -> None:
    with client.websocket_connect(URL) as socket:
        socket.receive_json()
        whole = run(socket, prompt="abcdef")[-1]
        engine.lost = frozenset(lost)
        events = run(socket, prompt="abcdef")
    assert whole["steps_dropped"] == 0
    assert whole["predicted_ttft_ms"] > 0
    assert whole["predicted_itl_ms"] > 0
    steps = [event for event in events if event["type"] == "step"]
    assert [step["step"] for step in steps] == sorted({*range(6)} - lost)
    assert all(step["predicted_ms"] > 0 for step in steps)
    assert steps[-1]["steps_dropped"] == events[-1]["steps_dropped"] == len(lost)
    assert (events[-1]["predicted_ttft_ms"], events[-1]["predicted_itl_ms"]) == (None, None)
    assert events[-1]["text"] == "abcdef"


def test_an_answer_may_come_without_any_step(client: TestClient, engine: LossyEngine) -> None:
    engine.lost = frozenset(range(6))
    with client.websocket_connect(URL) as socket:
        socket.receive_json()
        events = run(socket, prompt="abcdef")
    assert [event["type"] for event in events] == ["accepted", "queued", *["token"] * 6, "done"]
    assert (events[-1]["predicted_ttft_ms"], events[-1]["predicted_itl_ms"]) == (None, None)
