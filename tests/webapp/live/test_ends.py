"""How connections end: clients that leave, clients that do not read, a server that stops."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import struct
import time
import weakref

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp, events_until_end, running_app, wait_for
from tests.webapp.raw_socket import CLOSE, FIN, TEXT, RawSocket
from webapp.live.outbox import Outbox, ReaderStuck
from webapp.schemas.live_events import PongEvent
from webapp.settings import Settings

GENERATE = b'{"type": "generate", "prompt": "ab", "max_tokens": 8000}'


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(pause_s=0.005, endless=True)


def leave(client: RawSocket, how: str) -> None:
    if how == "close frame":
        client.send(FIN | CLOSE, struct.pack("!H", 1000))
    elif how == "reset":
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
    elif how == "end of stream":
        client.socket.shutdown(socket.SHUT_WR)
    else:
        client.send(FIN | 3, b"broken")


@pytest.mark.kind("O04")
@pytest.mark.parametrize("how", ["close frame", "reset", "end of stream", "broken frame"])
@pytest.mark.parametrize("tokens", [0, 3])
def test_leaving_ends_the_request_at_once(
    server: LiveApp, engine: FakeEngine, how: str, tokens: int
) -> None:
    client = RawSocket(server.port)
    client.send(FIN | TEXT, GENERATE)
    wait_for(lambda: len(engine.running) == 1 and engine.tokens_made >= tokens)
    leave(client, how)
    began = time.monotonic()
    wait_for(lambda: not engine.running and len(server.app.state.live) == 0, 3)
    assert time.monotonic() - began < 1
    assert len(engine.aborted) == 1
    made = engine.tokens_made
    time.sleep(0.05)
    assert engine.tokens_made <= made + 2
    client.socket.close()


class LooseEngine(FakeEngine):
    """Holds nobody who waits for it: a request lives only as long as its connection holds it."""

    async def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(self.pause_s, _wake, weakref.ref(future))
        await future


def _wake(waiting: weakref.ref[asyncio.Future[None]]) -> None:
    future = waiting()
    if future is not None and not future.done():
        future.set_result(None)


@pytest.mark.kind("O48")
def test_two_hundred_runs_survive_garbage_collection_at_every_event() -> None:
    engine = LooseEngine(pause_s=0.001)
    settings = Settings(live_messages_per_s=1000)
    with running_app(settings, engine) as server, server.connect() as connection:
        for number in range(50):
            names = [f"{number}-{i}" for i in range(4)]
            for name in names:
                message = {"type": "generate", "prompt": "xyz", "request_id": name}
                connection.send(json.dumps(message))
            texts: dict[str, str] = {}
            while len(texts) < 4:
                # A task that nobody holds is young; now and then, all ages are looked at.
                gc.collect(2 if number % 25 == 0 else 1)
                event = json.loads(connection.recv(timeout=5))
                assert event["type"] != "error", event
                if event["type"] == "done":
                    texts[event["request_id"]] = event["text"]
            assert texts == dict.fromkeys(names, "xyz")
        assert not engine.running


def test_a_reader_that_never_reads_is_closed(engine: FakeEngine) -> None:
    engine.pause_s = 0.0
    settings = Settings(live_stuck_s=0.5, live_outbox_events=32)
    with running_app(settings, engine) as server:
        client = RawSocket(server.port, receive_buffer=32_768)
        client.send(FIN | TEXT, b'{"type": "generate", "prompt": "%s"}' % (b"x" * 30_000))
        wait_for(lambda: engine.tokens_made > 0)
        memory = psutil.Process().memory_info().rss
        wait_for(lambda: not engine.running and len(server.app.state.live) == 0, 10)
        assert engine.aborted
        assert psutil.Process().memory_info().rss - memory < 20_000_000
        # Once it reads on, it finds what was sent, and then why it was closed.
        assert client.close_code() == 1013
        client.socket.close()


def test_others_do_not_wait_for_a_reader_that_is_stuck(engine: FakeEngine) -> None:
    engine.pause_s, engine.letters_per_token = 0.0, 100_000
    with running_app(Settings(live_stuck_s=120, live_outbox_events=32), engine) as server:
        stuck = RawSocket(server.port, receive_buffer=32_768)
        stuck.send(FIN | TEXT, GENERATE)
        before = wait_until_stuck(engine)
        engine.letters_per_token = 1
        with server.connect() as connection:
            connection.send(json.dumps({**json.loads(GENERATE), "request_id": "mine"}))
            wait_for(lambda: len(engine.running) == 2)
            tokens = 0
            while tokens < 1000:
                event = json.loads(connection.recv(timeout=5))
                tokens += event["type"] == "token"
            connection.send('{"type": "abort", "request_id": "mine"}')
            assert events_until_end(connection)[-1]["finish_reason"] == "abort"
            assert len(engine.running) == 1, "the other one is stuck all the while"
        assert next(iter(engine.made.values())) == before
        stuck.socket.close()


def wait_until_stuck(engine: FakeEngine) -> int:
    """Until the engine's stream waits for the reader; the tokens made up to then."""
    made = -1
    while engine.tokens_made > made:
        made = engine.tokens_made
        time.sleep(0.3)
    return made


def test_steps_are_dropped_and_counted_but_tokens_are_not(engine: FakeEngine) -> None:
    engine.pause_s, engine.endless, engine.letters_per_token = 0.0, False, 3000
    prompt = "abcdefghij" * 300
    with running_app(Settings(live_outbox_events=16, live_stuck_s=20), engine) as server:
        client = RawSocket(server.port, receive_buffer=32_768)
        message = {"type": "generate", "prompt": prompt, "max_tokens": 3000}
        client.send(FIN | TEXT, json.dumps(message).encode())
        assert wait_until_stuck(engine) < 3000
        events: list[dict] = []
        while not events or events[-1]["type"] != "done":
            frame = client.frame()
            assert frame is not None
            if frame[0] == TEXT:
                events.append(json.loads(frame[1]))
        client.socket.close()
    mine = [event for event in events if event["request_id"] is not None]
    assert [event["seq"] for event in mine] == list(range(len(mine)))
    tokens = [event for event in mine if event["type"] == "token"]
    assert [token["index"] for token in tokens] == list(range(3000))
    assert "".join(token["text"] for token in tokens) == "".join(letter * 3000 for letter in prompt)
    steps = [event for event in mine if event["type"] == "step"]
    assert mine[-1]["steps_dropped"] == 3000 - len(steps) > 0


def test_stopping_tells_requests_and_closes_with_1012(engine: FakeEngine) -> None:
    with running_app(Settings(), engine) as server, server.connect() as connection:
        connection.send(GENERATE.decode())
        for _ in range(20):
            connection.recv(timeout=5)
        began = time.monotonic()
        server.server.should_exit = True
        last: dict = {}
        try:
            while True:
                last = json.loads(connection.recv(timeout=10))
        except ConnectionClosed as closed:
            code = None if closed.rcvd is None else closed.rcvd.code
        assert code == 1012
        assert (last["type"], last["code"]) == ("error", "server_stopping")
        wait_for(lambda: not engine.running)
        assert time.monotonic() - began < 5


def test_stopping_does_not_wait_for_a_reader_that_is_stuck(engine: FakeEngine) -> None:
    engine.pause_s = 0.0
    settings = Settings(live_outbox_events=16)
    began = 0.0
    with running_app(settings, engine) as server:
        client = RawSocket(server.port, receive_buffer=32_768)
        client.send(FIN | TEXT, GENERATE)
        time.sleep(0.5)
        began = time.monotonic()
    assert time.monotonic() - began < 10
    client.socket.close()


@pytest.mark.anyio
async def test_outbox_waits_when_full_and_gives_up_on_a_stuck_reader() -> None:
    gate = asyncio.Event()
    sent: list[str] = []

    async def send(text: str) -> None:
        await gate.wait()
        sent.append(text)

    outbox = Outbox(send, max_events=2, stuck_s=0.2)
    writer = asyncio.create_task(outbox.run())
    for _ in range(3):
        await outbox.put(PongEvent())
        await asyncio.sleep(0)
    assert not outbox.offer(PongEvent())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(outbox.put(PongEvent()), 0.05)
    with pytest.raises(ReaderStuck):
        await writer
    gate.set()
    writer = asyncio.create_task(outbox.run())
    await asyncio.sleep(0.05)
    writer.cancel()
    assert len(sent) == 2
