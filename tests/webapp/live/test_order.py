"""Messages that meet: an abort right behind its request, a stop right behind an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from engine.inference.messages import Generate, Message
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live.scripted_socket import ScriptedSocket, connect

pytestmark = pytest.mark.anyio

GENERATE = {"type": "generate", "prompt": "ab", "request_id": "r"}
ABORT = {"type": "abort", "request_id": "r"}


class ForgetfulEngine(FakeEngine):
    """Like the worker: an abort of a request that it does not know has no effect."""

    async def abort(self, request_id: str) -> None:
        if request_id in self.running:
            await super().abort(request_id)


async def test_an_abort_right_behind_its_request_ends_it() -> None:
    engine = ForgetfulEngine(endless=True)
    socket = ScriptedSocket(GENERATE, ABORT)
    running = asyncio.create_task(connect(socket, engine).run())
    done = await socket.until("done")
    assert done["finish_reason"] == "abort"
    assert [event["type"] for event in socket.sent if event["request_id"] == "r"][-1] == "done"
    socket.leave()
    await running
    assert engine.aborted == [], "the engine ended it; nobody left"


async def test_aborting_twice_is_one_end() -> None:
    engine = ForgetfulEngine(endless=True)
    socket = ScriptedSocket(GENERATE, ABORT, ABORT)
    running = asyncio.create_task(connect(socket, engine).run())
    await socket.until("done")
    socket.leave()
    await running
    ends = [event for event in socket.sent if event["type"] in ("done", "error")]
    assert [end["type"] for end in ends] == ["done"]


class SlowToClose(FakeEngine):
    """Its stream stays open after the last message, until it is closed."""

    async def generate(self, request: Generate) -> AsyncGenerator[Message, None]:
        async for message in super().generate(request):
            yield message
        await asyncio.Event().wait()


async def test_a_stopping_server_adds_nothing_to_a_request_that_has_ended() -> None:
    socket = ScriptedSocket(GENERATE)
    connection = connect(socket, SlowToClose())
    running = asyncio.create_task(connection.run())
    await socket.until("done")
    await connection.interrupt(1)
    socket.leave()
    await running
    assert [event for event in socket.sent if event["type"] == "error"] == []


async def test_a_stopping_server_tells_the_others() -> None:
    socket = ScriptedSocket(GENERATE)
    connection = connect(socket, FakeEngine(endless=True))
    running = asyncio.create_task(connection.run())
    await socket.until("token")
    await connection.interrupt(1)
    socket.leave()
    await running
    ends = [event for event in socket.sent if event["type"] in ("done", "error")]
    assert [end.get("code") for end in ends] == ["server_stopping"]


async def test_what_has_ended_is_not_running_any_more() -> None:
    socket = ScriptedSocket(GENERATE)
    running = asyncio.create_task(connect(socket, SlowToClose()).run())
    await socket.until("done")
    socket.say(ABORT)
    assert (await socket.until("error"))["code"] == "unknown_request"
    socket.leave()
    await running
    assert [event["type"] for event in socket.sent].count("done") == 1
