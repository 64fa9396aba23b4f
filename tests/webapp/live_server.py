"""Runs the app behind uvicorn on a socket, in a thread of the test process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import websockets.sync.client
from fastapi import FastAPI
from websockets.sync.client import ClientConnection

from webapp.app import create_app
from webapp.live.engine_port import EnginePort
from webapp.serving import LiveServer, bind, server_config
from webapp.settings import Settings


@dataclass(frozen=True)
class LiveApp:
    """A running server."""

    app: FastAPI
    engine: Any
    port: int
    server: LiveServer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws/generate"

    @contextmanager
    def connect(self, **options: Any) -> Iterator[ClientConnection]:
        """A websocket that has read its hello. It does not ping: what else the machine does may
        take longer than it would wait for the answer."""
        with websockets.sync.client.connect(
            self.ws_url,
            compression=None,
            max_size=None,
            close_timeout=1,
            ping_interval=None,
            **options,
        ) as connection:
            hello = json.loads(connection.recv(timeout=5))
            assert hello["type"] == "hello"
            yield connection


@contextmanager
def running_app(settings: Settings, engine: EnginePort, port: int = 0) -> Iterator[LiveApp]:
    """Serves until the block ends; fails if the server does not stop. Port 0 takes a free one."""
    app = create_app(settings, engine)
    sockets = bind("127.0.0.1", port)
    port = sockets[0].getsockname()[1]
    server = LiveServer(server_config(app), app.state.live)
    thread = threading.Thread(target=server.run, kwargs={"sockets": sockets}, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield LiveApp(app, engine, port, server)
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive(), "the server did not stop"


def wait_for(condition: object, timeout_s: float = 5.0) -> None:
    """Waits until ``condition()`` holds; fails after ``timeout_s``."""
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


def events_until_end(connection: ClientConnection, timeout_s: float = 10.0) -> list[dict]:
    """Every event up to and including ``done`` or ``error``."""
    events: list[dict] = []
    while not events or events[-1]["type"] not in ("done", "error"):
        events.append(json.loads(connection.recv(timeout=timeout_s)))
    return events
