"""What one connection, and all together, may do at once."""

from __future__ import annotations

import json
import time

import pytest
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live.test_generation import URL, run, until_end
from tests.webapp.live_server import LiveApp, events_until_end, running_app, wait_for
from webapp.app import create_app
from webapp.live.connection import MAX_FLOOD
from webapp.live.rate_limit import TokenBucket
from webapp.settings import Settings


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(pause_s=0.01, endless=True)


def start(connection: object, request_id: str) -> None:
    message = {"type": "generate", "prompt": "ab", "request_id": request_id}
    connection.send(json.dumps(message))  # pyright: ignore


def test_several_requests_at_once_and_no_more(server: LiveApp, engine: FakeEngine) -> None:
    with server.connect() as connection:
        for number in range(5):
            start(connection, f"r{number}")
        refused = None
        while refused is None:
            event = json.loads(connection.recv(timeout=5))
            refused = event if event["type"] == "error" else None
        assert (refused["code"], refused["request_id"]) == ("too_many_requests", "r4")
        wait_for(lambda: len(engine.running) == 4)
        connection.send('{"type": "abort", "request_id": "r2"}')
        events: dict[str, list[dict]] = {}
        # All of them are heard of, and the others go on after it has ended.
        while len(events) < 4 or events.get("r2", [{}])[-1].get("type") != "done":
            event = json.loads(connection.recv(timeout=5))
            events.setdefault(event["request_id"], []).append(event)
        assert events["r2"][-1]["finish_reason"] == "abort"
        assert json.loads(connection.recv(timeout=5))["request_id"] in {"r0", "r1", "r3"}
        start(connection, "r5")
        wait_for(lambda: len(engine.running) == 4)


def test_each_request_counts_its_own_events(server: LiveApp) -> None:
    with server.connect() as connection:
        for name in ("a", "b", "c"):
            start(connection, name)
        seen: dict[str, int] = {}
        for _ in range(200):
            event = json.loads(connection.recv(timeout=5))
            assert event["seq"] == seen.get(event["request_id"], -1) + 1
            seen[event["request_id"]] = event["seq"]
        assert set(seen) == {"a", "b", "c"}


def test_a_running_id_is_refused_and_its_run_goes_on(server: LiveApp, engine: FakeEngine) -> None:
    with server.connect() as connection:
        start(connection, "same")
        wait_for(lambda: engine.tokens_made > 2)
        start(connection, "same")
        last, refusal = -1, None
        for _ in range(60):
            event = json.loads(connection.recv(timeout=5))
            if event["type"] == "error":
                refusal = event
            elif event["request_id"] == "same":
                assert event["seq"] == last + 1
                last = event["seq"]
        assert refusal is not None
        assert (refusal["code"], refusal["request_id"]) == ("duplicate_request_id", None)
        assert len(engine.requests) == 1


def test_abort_of_what_does_not_run(server: LiveApp, engine: FakeEngine) -> None:
    with server.connect() as connection, server.connect() as other:
        start(other, "theirs")
        wait_for(lambda: len(engine.running) == 1)
        for name in ("nothing", "theirs"):
            connection.send(json.dumps({"type": "abort", "request_id": name}))
            event = json.loads(connection.recv(timeout=5))
            assert event["code"] == "unknown_request"
        assert len(engine.running) == 1, "nobody ends another client's request"


def test_ids_of_two_clients_do_not_meet(server: LiveApp, engine: FakeEngine) -> None:
    with server.connect() as one, server.connect() as two:
        start(one, "same")
        start(two, "same")
        wait_for(lambda: len(engine.running) == 2)
        one.send('{"type": "abort", "request_id": "same"}')
        assert events_until_end(one)[-1]["finish_reason"] == "abort"
        wait_for(lambda: len(engine.running) == 1)
        before = engine.tokens_made
        wait_for(lambda: engine.tokens_made > before)


def test_too_many_messages_a_second(client: TestClient, engine: FakeEngine) -> None:
    with client.websocket_connect(URL) as socket:
        socket.receive_json()
        for _ in range(40):
            socket.send_text('{"type": "ping"}')
        kinds = [socket.receive_json() for _ in range(40)]
        limited = [event for event in kinds if event["type"] == "error"]
        assert 10 <= len(limited) <= 20
        assert {event["code"] for event in limited} == {"rate_limited"}
        time.sleep(0.2)
        engine.endless = False
        assert run(socket, prompt="a")[-1]["type"] == "done"


def test_a_flood_is_closed(client: TestClient) -> None:
    with client.websocket_connect(URL) as socket:
        socket.receive_json()
        for _ in range(MAX_FLOOD + 60):
            socket.send_text('{"type": "ping"}')
        closed_with = None
        while closed_with is None:
            try:
                socket.receive_text()
            except WebSocketDisconnect as closed:
                closed_with = closed.code
        assert closed_with == 1008


def test_other_origins_are_refused_before_accepting(client: TestClient) -> None:
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        with pytest.raises(WebSocketDenialResponse) as denied:
            client.websocket_connect(URL, headers={"origin": origin}).__enter__()
        assert denied.value.status_code == 403
    for origin in ("http://localhost", None):
        headers = {} if origin is None else {"origin": origin}
        with client.websocket_connect(URL, headers=headers) as socket:
            assert socket.receive_json()["type"] == "hello"


def test_other_hosts_are_refused_before_accepting(client: TestClient) -> None:
    with pytest.raises(WebSocketDenialResponse) as denied:
        client.websocket_connect("ws://evil.example/ws/generate").__enter__()
    assert denied.value.status_code == 400


def test_connections_are_bounded(engine: FakeEngine) -> None:
    app = create_app(Settings(live_connections=2), engine)
    with TestClient(app, base_url="http://localhost") as client:
        with client.websocket_connect(URL) as one, client.websocket_connect(URL) as two:
            one.receive_json()
            two.receive_json()
            with pytest.raises(WebSocketDenialResponse) as denied:
                client.websocket_connect(URL).__enter__()
            assert denied.value.status_code == 503
        wait_for(lambda: len(app.state.live) == 0)
        with client.websocket_connect(URL) as socket:
            assert socket.receive_json()["type"] == "hello"


def test_plain_http_gets_no_websocket(client: TestClient) -> None:
    assert client.get("/ws/generate").status_code == 404


def test_refused_over_uvicorn(engine: FakeEngine) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    with (
        running_app(Settings(), engine) as server,
        pytest.raises(InvalidStatus) as refused,
        connect(server.ws_url, origin="https://evil.example"),  # pyright: ignore
    ):
        pass
    assert refused.value.response.status_code == 403


def test_token_bucket() -> None:
    now = 0.0
    bucket = TokenBucket(2, burst=3, clock=lambda: now)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now = 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]
    now = 100.0
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_until_end_reads_errors_too(client: TestClient, engine: FakeEngine) -> None:
    engine.state = "stopped"
    with client.websocket_connect(URL) as socket:
        socket.receive_json()
        socket.send_json({"type": "generate", "prompt": "a"})
        assert until_end(socket)[-1]["type"] == "error"
