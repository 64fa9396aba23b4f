"""The web process with the real worker process, which runs the tiny random model."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator

import httpx2
import pytest
from websockets.sync.client import ClientConnection

from engine.inference.options import EngineOptions
from engine.inference.supervisor import EngineClient
from tests.webapp.live_server import LiveApp, events_until_end, running_app, wait_for
from webapp.settings import Settings

pytestmark = pytest.mark.serial

OPTIONS = EngineOptions(
    model="tiny", device="cpu", dtypes="float32", kv_tokens=4096, calibrate="never"
)
LONG = {"type": "generate", "prompt": "once upon a time", "max_tokens": 1500, "temperature": 1.0}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveApp]:
    with running_app(Settings(live_messages_per_s=1000), EngineClient(OPTIONS)) as live_app:
        assert httpx2.get(f"{live_app.url}/readyz").status_code == 503
        wait_until_ready(live_app, 60)
        yield live_app


def wait_until_ready(server: LiveApp, timeout_s: float) -> None:
    wait_for(lambda: httpx2.get(f"{server.url}/readyz").status_code == 200, timeout_s)


def send(connection: ClientConnection, **fields: object) -> None:
    connection.send(json.dumps({"type": "generate", **fields}, ensure_ascii=False))


def next_of(connection: ClientConnection, kind: str) -> dict:
    while True:
        event = json.loads(connection.recv(timeout=10))
        if event["type"] == kind:
            return event
        assert event["type"] != "error", event


def test_a_prompt_streams_to_its_end(server: LiveApp) -> None:
    with server.connect() as connection:
        send(connection, prompt="Hello, 世界 🙂", max_tokens=24)
        events = events_until_end(connection)
    accepted, done = events[0], events[-1]
    assert "".join(accepted["prompt_pieces"])
    assert done["type"] == "done"
    tokens = [event for event in events if event["type"] == "token"]
    assert done["usage"]["completion_tokens"] == len(tokens)
    assert "".join(token["text"] for token in tokens) + done["tail"] == done["text"]
    steps = [event for event in events if event["type"] == "step"]
    assert steps[0]["phase"] == "prefill"
    assert {step["phase"] for step in steps[1:]} == {"decode"}
    assert done["ttft_ms"] > 0
    assert len(done["itl_ms"]) == len(tokens) - 1
    assert (
        steps[-1]["kv_bytes"]
        == steps[-1]["own_kv_tokens"]
        * (
            httpx2.get(f"{server.url}/api/v1/engine").json()["info"]["lanes"][0][
                "kv_bytes_per_token"
            ]
        )
    )


def test_two_people_share_a_batch(server: LiveApp) -> None:
    with server.connect() as one, server.connect() as two:
        one.send(json.dumps(LONG))
        next_of(one, "token")
        two.send(json.dumps(LONG))
        next_of(two, "token")
        assert next_of(two, "step")["batch"] == 2
        shared = {next_of(one, "step")["batch"] for _ in range(20)}
        assert 2 in shared


def test_leaving_frees_the_engine(server: LiveApp) -> None:
    with server.connect() as connection:
        connection.send(json.dumps(LONG))
        next_of(connection, "token")
    began = time.monotonic()
    running = 2
    while running > 1:
        with server.connect() as other:
            send(other, prompt="a", max_tokens=1)
            running = next_of(other, "step")["running"]
    assert time.monotonic() - began < 2


def test_abort_ends_with_done(server: LiveApp) -> None:
    with server.connect() as connection:
        connection.send(json.dumps({**LONG, "request_id": "mine"}))
        next_of(connection, "token")
        connection.send('{"type": "abort", "request_id": "mine"}')
        done = events_until_end(connection)[-1]
        assert (done["type"], done["finish_reason"]) == ("done", "abort")


def test_questions_beside_a_stream(server: LiveApp) -> None:
    """The tokenizer answers while probes run, and a stream goes on to its end meanwhile."""
    api = f"{server.url}/api/v1"
    with server.connect() as connection, httpx2.Client(timeout=20) as client:
        send(connection, prompt="once upon a time", max_tokens=40)
        text = "Hello, 世界 🙂"
        tokens = client.post(f"{api}/tokenize", json={"text": text}).json()["tokens"]
        ids = [token["id"] for token in tokens]
        assert client.post(f"{api}/detokenize", json={"ids": ids}).json()["text"] == text
        merged = client.post(f"{api}/probes/merges", json={"text": text}).json()["words"]
        assert [token["id"] for word in merged for token in word["tokens"]] == ids
        seen = client.post(f"{api}/probes/hidden-norms", json={"text": text}).json()
        assert [token["id"] for token in seen["tokens"]] == ids
        assert len(seen["residual"][0]) == len(ids)
        refused = client.post(f"{api}/probes/overview", json={"text": "a " * 900})
        assert (refused.status_code, refused.json()["reason"]) == (422, "token_count")
        assert events_until_end(connection)[-1]["type"] == "done"


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"prompt": "a" * 32_000, "max_tokens": 8000}, "never_fits", None),
        ({"prompt": "a", "weights": "int5"}, "invalid_request", "/weights"),
        ({"prompt": "a", "kv_cache": "off", "n": 2}, "invalid_request", "/kv_cache"),
    ],
)
def test_what_the_engine_refuses(
    server: LiveApp, fields: dict, code: str, field: str | None
) -> None:
    with server.connect() as connection:
        send(connection, **fields)
        error = events_until_end(connection)[-1]
        assert (error["type"], error["code"]) == ("error", code)
        if field is not None:
            assert error["field"] == field
        send(connection, prompt="a", max_tokens=1)
        assert events_until_end(connection)[-1]["type"] == "done"


@pytest.mark.kind("O16")
def test_health_stays_quick_under_large_prompts(server: LiveApp) -> None:
    """Tokenizing and stepping happen elsewhere; parsing is bounded by the frame."""
    times: list[float] = []
    stop = threading.Event()

    def probe() -> None:
        with httpx2.Client() as client:
            while not stop.is_set():
                began = time.perf_counter()
                assert client.get(f"{server.url}/healthz").status_code == 200
                times.append(time.perf_counter() - began)
                time.sleep(0.01)

    prober = threading.Thread(target=probe)
    prober.start()
    try:
        with server.connect() as connection:
            while len(times) < 100:
                for prompt in ("a" * 32_000, "_" * 32_000, "中" * 20_000, "[" * 32_000):
                    send(connection, prompt=prompt, max_tokens=1)
                    events_until_end(connection, 30)
    finally:
        stop.set()
        prober.join()
    times.sort()
    # The goal is 50 ms at p99 on an idle machine; this bound also holds on a busy one.
    assert times[int(len(times) * 0.9)] < 0.25


def test_kill_of_the_worker_in_mid_stream(server: LiveApp) -> None:
    with server.connect() as connection:
        connection.send(json.dumps(LONG))
        next_of(connection, "token")
        os.kill(server.engine.pid, signal.SIGKILL)
        killed = time.monotonic()
        error = events_until_end(connection)[-1]
        assert time.monotonic() - killed < 2
        assert (error["type"], error["code"]) == ("error", "engine_restarted")
        answer = httpx2.get(f"{server.url}/readyz")
        assert answer.status_code == 503
        assert answer.json()["state"] == "restarting"
        assert answer.json()["reason"]
        wait_until_ready(server, 15)
        send(connection, prompt="again", max_tokens=3)
        assert events_until_end(connection)[-1]["type"] == "done"
        assert httpx2.get(f"{server.url}/api/v1/engine").json()["restarts"] == 1
        assert time.monotonic() - killed < 15


def test_events_of_several_samples_count_on(server: LiveApp) -> None:
    with server.connect() as connection:
        send(connection, prompt="a", n=3, max_tokens=4, temperature=1.0, seed=1)
        numbers: list[int] = []
        left = 3
        while left:
            event = json.loads(connection.recv(timeout=10))
            if event["request_id"] is not None:
                numbers.append(event["seq"])
                left = event.get("samples_left", left)
    assert numbers == list(range(len(numbers)))
