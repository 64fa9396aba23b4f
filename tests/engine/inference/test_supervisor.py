"""The worker process and its supervisor, for real, with the tiny random model."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from engine.inference import supervisor
from engine.inference.messages import Accepted, Done, Failed, Generate, Queued, Step, Token
from engine.inference.options import EngineOptions
from engine.inference.supervisor import EngineClient, EngineState

pytestmark = [pytest.mark.anyio, pytest.mark.serial]

OPTIONS = EngineOptions(model="tiny", dtypes="float32", kv_tokens=1024, calibrate="never")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@asynccontextmanager
async def running(options=OPTIONS):
    client = EngineClient(options)
    await client.start()
    try:
        await until(lambda: client.state is EngineState.READY, 30)
        yield client
    finally:
        await client.stop()


async def until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def collect(client, request):
    return [message async for message in client.generate(request)]


async def test_one_request_from_accepted_to_done():
    async with running() as client:
        assert client.info is not None
        assert client.info.random_weights
        heard = await collect(client, Generate("a", prompt="hello", max_tokens=5))
        assert isinstance(heard[0], Accepted)
        done = heard[-1]
        assert isinstance(done, Done)
        tokens = [m for m in heard if isinstance(m, Token)]
        assert "".join(t.text for t in tokens) + done.tail == done.text
        assert [t.index for t in tokens] == list(range(len(tokens)))
        assert done.completion_tokens == len(tokens)
        steps = [m for m in heard if isinstance(m, Step)]
        assert [s.phase for s in steps] == ["prefill"] + ["decode"] * (len(tokens) - 1)


async def test_several_requests_share_steps_and_get_what_each_gets_alone():
    async with running() as client:
        prompts = ["one", "two two", "三三三", "🙂🚀"]
        alone = [
            (await collect(client, Generate(f"alone{i}", prompt=p, max_tokens=20)))[-1]
            for i, p in enumerate(prompts)
        ]
        together = await asyncio.gather(
            *(
                collect(client, Generate(f"together{i}", prompt=p, max_tokens=20))
                for i, p in enumerate(prompts)
            )
        )
        assert [heard[-1].text for heard in together] == [done.text for done in alone]
        assert max(m.batch for heard in together for m in heard if isinstance(m, Step)) > 1


async def test_characters_that_no_token_spells_are_told():
    options = EngineOptions(dtypes="float32", kv_tokens=256, calibrate="never")
    async with running(options) as client:
        heard = await collect(client, Generate("a", prompt="a\x04b", max_tokens=1))
        spelled = await collect(client, Generate("b", prompt="ab", max_tokens=1))
        assert isinstance(heard[0], Accepted)
        assert isinstance(spelled[0], Accepted)
        assert (heard[0].notices, spelled[0].notices) == (("characters_left_out",), ())


async def test_refusals_name_the_field_and_leave_the_engine_alone():
    async with running() as client:
        for request, code, field in [
            (Generate("a", prompt="", max_tokens=5), "invalid_request", "prompt"),
            (Generate("a", prompt="x", max_tokens=8_000), "never_fits", "max_tokens"),
            (Generate("a", prompt="x", temperature=-1.0), "invalid_request", "temperature"),
            (Generate("a", prompt="x", weights="float64"), "invalid_request", "weights"),
            (Generate("a"), "invalid_request", "prompt"),
        ]:
            heard = await collect(client, request)
            assert len(heard) == 1
            assert isinstance(heard[0], Failed)
            assert (heard[0].code, heard[0].field) == (code, field)
        assert isinstance(
            (await collect(client, Generate("b", prompt="x", max_tokens=2)))[-1], Done
        )


async def test_leaving_early_aborts_and_frees_the_blocks():
    async with running() as client:
        stream = client.generate(Generate("a", prompt="x", max_tokens=900))
        async for message in stream:
            if isinstance(message, Token):
                break
        await stream.aclose()
        heard = await collect(client, Generate("b", prompt="y", max_tokens=3))
        steps = [m for m in heard if isinstance(m, Step)]
        assert steps[-1].kv_blocks_used == steps[-1].own_kv_blocks


async def test_abort_ends_the_stream_with_what_was_made():
    async with running() as client:
        heard = []
        async for message in client.generate(Generate("a", prompt="x", max_tokens=900)):
            heard.append(message)
            if isinstance(message, Token) and message.index == 2:
                await client.abort("a")
        assert isinstance(heard[-1], Done)
        assert heard[-1].finish_reason == "abort"
        assert 3 <= heard[-1].completion_tokens < 900


async def test_a_killed_worker_fails_the_stream_at_once_and_comes_back(caplog):
    async with running() as client:
        killed_at = 0.0
        heard = []
        async for message in client.generate(Generate("a", prompt="x", max_tokens=900)):
            heard.append(message)
            if isinstance(message, Token) and message.index == 2:
                assert client.pid is not None
                os.kill(client.pid, signal.SIGKILL)
                killed_at = time.monotonic()
        assert isinstance(heard[-1], Failed)
        assert heard[-1].code == "engine_restarted"
        assert time.monotonic() - killed_at < 2
        assert client.state is not EngineState.READY
        refused = await collect(client, Generate("b", prompt="x"))
        assert isinstance(refused[-1], Failed)
        await until(lambda: client.state is EngineState.READY, 30)
        again = await collect(client, Generate("c", prompt="x", max_tokens=3))
        assert isinstance(again[-1], Done)
        assert client.restarts == 1
        said = [record.getMessage() for record in caplog.records]
        assert "the engine's process ended with signal 9 (SIGKILL)" in said


async def test_a_stopped_process_is_noticed_and_recovers():
    async with running() as client:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        await until(lambda: client.state is EngineState.UNRESPONSIVE, 5)
        os.kill(client.pid, signal.SIGCONT)
        await until(lambda: client.state is EngineState.READY, 5)
        assert isinstance(
            (await collect(client, Generate("a", prompt="x", max_tokens=2)))[-1], Done
        )


async def test_a_stopped_process_that_prompts_pile_up_for_is_killed(monkeypatch):
    monkeypatch.setattr(supervisor, "_KILL_AFTER", 6)
    async with running() as client:
        pid = client.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        # More than the socket and its buffer hold, so that writing waits for a reader.
        prompts = [Generate(f"r{i}", prompt="x" * 30_000) for i in range(30)]
        runs = [asyncio.create_task(collect(client, prompt)) for prompt in prompts]
        heard = await asyncio.wait_for(asyncio.gather(*runs), 30)
        assert {message[-1].code for message in heard} <= {"engine_restarted", "engine_unavailable"}
        await until(lambda: client.state is EngineState.READY, 60)
        assert client.pid != pid


async def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch):
    client = EngineClient(OPTIONS, command=["/no/such/program"])
    await client.start()
    try:
        await until(lambda: client.restarts >= 2, 10)
        assert client.state is EngineState.RESTARTING
        assert "could not be run" in client.reason
    finally:
        await client.stop()


async def test_an_interrupt_from_the_terminal_leaves_the_worker_to_its_owner():
    async with running() as client:
        assert client.pid is not None
        os.kill(client.pid, signal.SIGINT)
        heard = await collect(client, Generate("a", prompt="x", max_tokens=3))
        assert isinstance(heard[-1], Done)
        assert client.restarts == 0


async def test_an_abort_right_behind_its_request_is_not_lost():
    async with running() as client:
        stream = client.generate(Generate("a", prompt="x" * 900, max_tokens=100))
        first = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        await client.abort("a")
        heard = [await first] + [message async for message in stream]
        assert isinstance(heard[-1], Done)
        assert heard[-1].finish_reason == "abort"


async def test_the_place_in_the_queue_is_told_whenever_it_changes():
    options = replace(OPTIONS, max_running=1)
    async with running(options) as client:
        requests = [Generate(f"r{i}", prompt="x", max_tokens=5) for i in range(4)]
        heard = await asyncio.gather(*(collect(client, request) for request in requests))
        places = [[m.position for m in messages if isinstance(m, Queued)] for messages in heard]
        assert places[-1][-1] == 1
        assert all(told == sorted(told, reverse=True) for told in places)
        assert max(len(told) for told in places) > 1


def test_past_a_limit_steps_are_dropped_and_counted():
    stream = supervisor._Stream()
    step = Step("a", 1, "decode", "decode", 1, 1, 0, ((1, 1, True, 0),), 0, 0, {}, 2, 1, 1, 9, 1, 0)
    for _ in range(supervisor._MAX_QUEUED + 5):
        stream.put(step)
    stream.put(Token("a", 0, 5, "x", "x", -0.5, None, 3.0, 0.01))  # never dropped
    for _ in range(2):
        asyncio.run(stream.get())
    stream.put(step)
    last, kinds = None, []
    while not stream._queue.empty():
        last = asyncio.run(stream.get())
        kinds.append(type(last))
    assert isinstance(last, Step)
    assert last.dropped == 5
    assert kinds.count(Token) == 1


async def test_a_model_that_cannot_be_loaded_says_why():
    client = EngineClient(EngineOptions(model="no/such/file.gguf", calibrate="never"))
    await client.start()
    try:
        await until(lambda: client.state is EngineState.RESTARTING, 30)
        assert "model" in client.reason
        assert "exit status" not in client.reason
    finally:
        await client.stop()
    assert client.state is EngineState.STOPPED


async def test_the_worker_ends_with_the_one_who_started_it():
    async with running() as client:
        pid = client.pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
