"""Many clients at once, and many that come and go."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import psutil
import pytest
from websockets.asyncio.client import connect

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import running_app, wait_for
from tests.webapp.raw_socket import CLOSE, FIN, TEXT, RawSocket
from webapp.settings import Settings

CLIENTS = 60
TOKENS = 120


@pytest.mark.anyio
async def test_nothing_is_lost_doubled_reordered_or_foreign() -> None:
    async def one(url: str, number: int) -> list[dict]:
        async with connect(url, compression=None) as connection:
            await connection.recv()
            prompt = f"{number:03}" * (TOKENS // 3)
            message = {"type": "generate", "prompt": prompt, "max_tokens": TOKENS}
            # Everybody chooses the same id.
            await connection.send(json.dumps({**message, "request_id": "mine"}))
            events = []
            while not events or events[-1]["type"] not in ("done", "error"):
                events.append(json.loads(await connection.recv()))
            return events

    engine = FakeEngine(pause_s=0.001)
    with running_app(Settings(), engine) as server:
        answers = await asyncio.gather(*(one(server.ws_url, number) for number in range(CLIENTS)))
    for number, events in enumerate(answers):
        assert [event["seq"] for event in events] == list(range(len(events)))
        tokens = [event for event in events if event["type"] == "token"]
        assert [token["index"] for token in tokens] == list(range(TOKENS))
        assert "".join(token["text"] for token in tokens) == f"{number:03}" * (TOKENS // 3)
        assert events[-1]["text"] == f"{number:03}" * (TOKENS // 3)


def test_those_who_came_and_went_leave_nothing_behind() -> None:
    engine = FakeEngine(pause_s=0.001, endless=True)
    process = psutil.Process()
    with running_app(Settings(), engine) as server:
        live = server.app.state.live
        before = None
        for number in range(200):
            client = RawSocket(server.port)
            if number % 5:
                client.send(FIN | TEXT, b'{"type": "generate", "prompt": "ab"}')
            if number % 4 == 0:
                client.frame()
            if number % 3 == 0:
                client.send(FIN | CLOSE, struct.pack("!H", 1000))
            elif number % 3 == 1:
                linger = struct.pack("ii", 1, 0)
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.socket.close()
            if number == 20:
                wait_for(lambda: len(live) == 0 and not engine.running)
                before = process.num_fds()
        wait_for(lambda: len(live) == 0 and not engine.running)
        assert before is not None
        wait_for(lambda: process.num_fds() <= before + 2)
        assert len(server.server.server_state.tasks) == 0
        assert len(server.server.server_state.connections) == 0
