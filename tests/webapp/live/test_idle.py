"""Connections that nobody uses are closed; those that are used are not."""

from __future__ import annotations

import asyncio

import pytest
from websockets.exceptions import ConnectionClosed

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live.scripted_socket import ScriptedSocket, connect
from tests.webapp.live_server import running_app
from webapp.live.connection import CLOSE_IDLE
from webapp.settings import Settings

GENERATE = {"type": "generate", "prompt": "ab", "request_id": "r"}


@pytest.mark.anyio
async def test_silence_is_closed() -> None:
    socket = ScriptedSocket()
    async with asyncio.timeout(5):
        await connect(socket, FakeEngine(), Settings(live_idle_s=0.1)).run()
    assert socket.closed_with == CLOSE_IDLE
    assert [event["type"] for event in socket.sent] == ["hello"]


@pytest.mark.anyio
async def test_a_running_request_is_no_silence() -> None:
    clock = asyncio.get_running_loop().time
    engine, idle_s = FakeEngine(pause_s=0.01, endless=True), 0.1
    socket = ScriptedSocket(GENERATE)
    running = asyncio.create_task(connect(socket, engine, Settings(live_idle_s=idle_s)).run())
    await socket.until("token")
    began = clock()
    while clock() - began < 5 * idle_s:
        await asyncio.sleep(idle_s)
        assert not running.done()
    engine.endless = False
    await socket.until("done")
    ended = clock()
    async with asyncio.timeout(5):
        await running
    # The wait begins anew when the request ends, however long it ran.
    assert clock() - ended > 0.9 * idle_s
    assert socket.closed_with == CLOSE_IDLE
    assert engine.aborted == []


@pytest.mark.anyio
async def test_messages_are_no_silence() -> None:
    socket = ScriptedSocket()
    running = asyncio.create_task(connect(socket, FakeEngine(), Settings(live_idle_s=1)).run())
    for _ in range(5):
        await asyncio.sleep(0.3)
        socket.say({"type": "ping"})
    await socket.until("pong")
    assert not running.done()
    socket.leave()
    await running
    assert socket.closed_with is None
    assert [event["type"] for event in socket.sent].count("pong") == 5


def test_the_client_is_told_why() -> None:
    with (
        running_app(Settings(live_idle_s=0.2), FakeEngine()) as server,
        server.connect() as connection,
        pytest.raises(ConnectionClosed) as closed,
    ):
        connection.recv(timeout=5)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == CLOSE_IDLE
