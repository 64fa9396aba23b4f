"""What /metrics says of runs, beside what the answers say of themselves."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import openai
import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from engine.inference.messages import (
    Accepted,
    Done,
    Generate,
    Message,
    Preempted,
    Started,
    Step,
    Token,
)
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp
from webapp.app import create_app
from webapp.metrics import collecting
from webapp.metrics.collecting import Metrics
from webapp.metrics.observed_engine import ObservedEngine
from webapp.settings import Settings

DASHBOARD = Path(collecting.__file__).with_name("grafana-dashboard.json")
SECRET = "zqxSecretPrompt"


class TimedEngine(FakeEngine):
    """Tells times that differ from token to token, the first with the request's TTFT."""

    async def _answer(
        self, request: Generate, stop: asyncio.Event
    ) -> AsyncGenerator[Message, None]:
        async for message in super()._answer(request, stop):
            match message:
                case Token(index=0):
                    yield replace(message, time_ms=70.0)
                case Token():
                    yield replace(message, itl_ms=4.0 + message.index)
                case Done(completion_tokens=count):
                    gaps = tuple(4.0 + index for index in range(1, count))
                    yield replace(message, ttft_ms=70.0, itl_ms=gaps)
                case _:
                    yield message


def samples(text: str) -> dict[tuple[str, ...], float]:
    """By name and the values of its labels, in the order of the labels' names."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def engine() -> FakeEngine:
    return TimedEngine()


def local_client(app: object) -> TestClient:
    return TestClient(app, base_url="http://localhost", client=("127.0.0.1", 5))  # pyright: ignore


def test_times_agree_with_the_answers(engine: FakeEngine) -> None:
    with local_client(create_app(Settings(), engine)) as client:
        body = {"model": "fake", "prompt": SECRET}
        timings = [client.post("/v1/completions", json=body).json()["timings"] for _ in range(3)]
        text = client.get("/metrics").text
    found = samples(text)
    for name in ("ttft", "itl"):
        total = found[f"firsttoken_{name}_seconds_sum", "float32"]
        count = found[f"firsttoken_{name}_seconds_count", "float32"]
        mean = sum(each[f"{name}_ms"] for each in timings) / 3 / 1e3
        assert total / count == pytest.approx(mean, rel=0.05)
    tokens = 3 * len(SECRET)
    assert found["firsttoken_completion_tokens_total", "float32"] == tokens
    assert found["firsttoken_prompt_tokens_total", "float32"] == tokens
    assert found["firsttoken_requests_ended_total", "stop"] == 3
    assert found["firsttoken_http_request_seconds_count", "POST", "/v1/completions", "200"] == 3
    assert SECRET not in text


def test_the_websocket_and_the_api_are_counted_alike(server: LiveApp, engine: FakeEngine) -> None:
    with server.connect() as socket:
        socket.send(json.dumps({"type": "generate", "prompt": "abc"}))
        while json.loads(socket.recv(timeout=5))["type"] != "done":
            pass
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as program:
        program.completions.create(model="fake", prompt="abc")
    found = samples(server.app.state.metrics.text().decode())
    assert found["firsttoken_completion_tokens_total", "float32"] == 6


def _step(number: int, request: str, phase: str, time_ms: float, used: int) -> Step:
    shapes = ((0, 4, True, 0), (0, 4, True, 0))
    return Step(
        request, number, phase, phase, 2, 8, 0, shapes, 0.0, time_ms, {}, 4, 1, used, 64, 2, 0
    )


def _accepted(request: str) -> Accepted:
    return Accepted(request, "m", "cpu", "float32", "float32", (1, 2), ("a", "b"), 4, 0, 0.1)


def test_a_step_of_two_requests_counts_once() -> None:
    metrics = Metrics()
    for request in "ab":
        metrics.began(request, 1)
        metrics.observe(request, _accepted(request))
    for request in "ab":
        metrics.observe(request, _step(1, request, "prefill", 5.0, 7))
        metrics.observe(request, _step(2, request, "decode", 2.0, 8))
    found = samples(metrics.text().decode())
    assert found["firsttoken_step_seconds_count", "float32", "prefill"] == 1
    assert found["firsttoken_step_seconds_sum", "float32", "decode"] == pytest.approx(0.002)
    assert found["firsttoken_step_batch_sum", "float32"] == 4
    assert found["firsttoken_kv_blocks", "float32", "used"] == 8
    metrics.left("a")
    assert samples(metrics.text().decode())["firsttoken_kv_blocks", "float32", "used"] == 8
    metrics.left("b")
    found = samples(metrics.text().decode())
    assert found["firsttoken_kv_blocks", "float32", "used"] == 0
    assert found["firsttoken_requests_ended_total", "left"] == 2


def test_waiting_and_running_follow_each_sample() -> None:
    metrics = Metrics()

    def state() -> tuple[float, float]:
        found = samples(metrics.text().decode())
        return found["firsttoken_requests_waiting",], found["firsttoken_requests_running",]

    metrics.began("a", 2)
    assert state() == (2, 0)
    metrics.observe("a", _accepted("a"))
    metrics.observe("a", Started("a", 1.0, 16, 0))
    metrics.observe("a", Started("a", 1.0, 0, 16, sample=1))
    assert state() == (0, 2)
    metrics.observe("a", Preempted("a", 5, sample=1))
    assert state() == (1, 1)
    metrics.observe("a", Done("a", "length", 2, 4, 1.0, (), "", "", sample=0, samples_left=1))
    assert state() == (1, 0)
    metrics.left("a")
    assert state() == (0, 0)
    found = samples(metrics.text().decode())
    assert found["firsttoken_preemptions_total", "float32"] == 1
    assert found["firsttoken_cached_prompt_tokens_total", "float32"] == 16


def test_leaving_early_still_aborts_and_counts() -> None:
    async def leave(engine: FakeEngine, metrics: Metrics) -> None:
        observed = ObservedEngine(engine, metrics)
        async with aclosing(observed.generate(Generate("r", prompt="abc"))) as messages:
            async for _ in messages:
                break

    engine, metrics = FakeEngine(endless=True), Metrics()
    asyncio.run(leave(engine, metrics))
    assert engine.aborted == ["r"]
    assert samples(metrics.text().decode())["firsttoken_requests_ended_total", "left"] == 1


def test_lanes_are_bounded_as_labels() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.began("r", 1)
        accepted = _accepted("r")
        metrics.observe("r", replace(accepted, lane=f"lane{number}"))
        metrics.left("r")
    found = samples(metrics.text().decode())
    lanes = {key[1] for key in found if key[0] == "firsttoken_prompt_tokens_total"}
    assert len(lanes) == 33
    assert found["firsttoken_prompt_tokens_total", "other"] == 2 * 68


def test_made_up_paths_are_no_labels(engine: FakeEngine) -> None:
    with local_client(create_app(Settings(), engine)) as client:
        for number in range(5):
            client.get(f"/made-up-{number}")
        client.get("/api/v1/runs/abcdefgh")
        text = client.get("/metrics").text
    assert "made-up" not in text
    assert "abcdefgh" not in text


@pytest.mark.parametrize(
    ("switch", "address", "headers", "status"),
    [
        ("local", "127.0.0.1", {}, 200),
        ("local", "::1", {}, 200),
        ("local", "192.0.2.7", {}, 403),
        ("local", "127.0.0.1", {"x-forwarded-for": "192.0.2.7"}, 403),
        ("all", "192.0.2.7", {}, 200),
        ("off", "127.0.0.1", {}, 404),
    ],
)
def test_who_may_read_them(
    engine: FakeEngine, switch: str, address: str, headers: dict[str, str], status: int
) -> None:
    app = create_app(Settings(metrics=switch), engine)  # pyright: ignore
    client = TestClient(app, base_url="http://localhost", client=(address, 5))
    assert client.get("/metrics", headers=headers).status_code == status


def test_the_dashboard_asks_for_what_there_is() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = set(re.findall(r"firsttoken_\w+", " ".join(queries)))
    exposed: set[str] = set()
    for family in Metrics().registry.collect():
        suffixes = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
        exposed |= {family.name + end for end in suffixes.get(family.type, ("",))}
    assert asked <= exposed
    families = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in asked}
    assert families == {family.name for family in Metrics().registry.collect()}
