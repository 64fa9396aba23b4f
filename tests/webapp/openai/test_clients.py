"""OpenAI's own client takes every answer, whole and streamed."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace

import openai
import pytest

from tests.webapp.fake_engine import INFO, FakeEngine
from tests.webapp.live_server import LiveApp, wait_for

TALK = [{"role": "user", "content": "Hello"}]


def test_models(program: openai.OpenAI) -> None:
    names = [model.id for model in program.models.list()]
    assert names == ["fake", "fake:float32", "fake:bfloat16"]
    assert program.models.retrieve("fake:float32").id == "fake:float32"
    with pytest.raises(openai.NotFoundError):
        program.models.retrieve("other")


def test_a_whole_chat(program: openai.OpenAI) -> None:
    answer = program.chat.completions.create(model="fake", messages=TALK)  # pyright: ignore
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello")
    assert choice.finish_reason == "stop"
    assert answer.object == "chat.completion"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 5)
    assert answer.usage.total_tokens == 10


def test_a_streamed_chat_is_the_whole_one(program: openai.OpenAI) -> None:
    chunks = list(
        program.chat.completions.create(
            model="fake",
            messages=TALK,  # pyright: ignore
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.choices[0].delta.role for chunk in chunks[:2]] == ["assistant", None]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Hello"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons == [None] * 5 + ["stop"]
    assert [chunk.usage is None for chunk in chunks] == [True] * 6 + [False]
    assert chunks[-1].choices == []


def test_whole_and_streamed_completion(program: openai.OpenAI) -> None:
    whole = program.completions.create(model="fake", prompt="abc", max_tokens=2)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("ab", "length")
    parts = list(program.completions.create(model="fake", prompt=["abc"], stream=True))
    assert "".join(part.choices[0].text for part in parts) == "abc"
    assert parts[-1].choices[0].finish_reason == "stop"


def test_what_is_not_said_is_as_in_the_reference(
    program: openai.OpenAI, engine: FakeEngine
) -> None:
    program.completions.create(model="fake", prompt="a")
    program.chat.completions.create(model="fake", messages=TALK)  # pyright: ignore
    completion, chat = engine.requests
    assert (completion.max_tokens, completion.temperature, completion.top_p) == (16, 1.0, 1.0)
    assert (chat.max_tokens, chat.temperature, chat.weights) == (512, 1.0, "auto")


def test_every_knob_reaches_the_engine(program: openai.OpenAI, engine: FakeEngine) -> None:
    program.chat.completions.create(
        model="fake:bfloat16",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}],
            },
        ],
        max_completion_tokens=7,
        temperature=0.5,
        top_p=0.9,
        n=2,
        seed=3,
        stop="\n",
        presence_penalty=0.1,
        frequency_penalty=-0.2,
        logit_bias={"5": -100},
        logprobs=True,
        top_logprobs=4,
        user="someone",
        metadata={"a": "b"},
        extra_body={"top_k": 9, "ignore_eos": True, "min_tokens": 2, "prefix_cache": True},
    )
    request = engine.requests[0]
    assert [(turn.role, turn.content) for turn in request.messages or ()] == [
        ("system", "Be brief."),
        ("user", "Hello"),
    ]
    expected = replace(
        request,
        weights="bfloat16",
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        n=2,
        seed=3,
        stop=("\n",),
        presence_penalty=0.1,
        frequency_penalty=-0.2,
        logit_bias=((5, -100),),
        top_logprobs=4,
        top_k=9,
        ignore_eos=True,
        min_tokens=2,
        prefix_cache=True,
    )
    assert request == expected


def test_logprobs_of_a_chat(program: openai.OpenAI) -> None:
    answer = program.chat.completions.create(
        model="fake",
        messages=TALK,  # pyright: ignore
        logprobs=True,
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [(one.token, one.logprob, one.bytes) for one in logprobs.content[:2]] == [
        ("H", -0.5, [72]),
        ("e", -0.5, [101]),
    ]


def test_logprobs_of_a_completion_name_their_places(
    program: openai.OpenAI, engine: FakeEngine
) -> None:
    engine.letters_per_token = 3
    whole = program.completions.create(model="fake", prompt="ab", logprobs=0).choices[0].logprobs
    assert whole is not None
    assert (whole.tokens, whole.text_offset) == (["aaa", "bbb"], [0, 3])
    assert whole.token_logprobs == [-0.5, -0.5]
    stream = program.completions.create(model="fake", prompt="ab", logprobs=0, stream=True)
    parts = [part.choices[0].logprobs for part in stream]
    assert [part.text_offset for part in parts if part] == [[0], [3]]


def test_an_impossible_token_has_a_number(program: openai.OpenAI, engine: FakeEngine) -> None:
    engine.logprob = float("-inf")
    answer = program.completions.create(model="fake", prompt="a", logprobs=1)
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.token_logprobs == [-9999.0]


def test_leaving_a_stream_ends_its_request(program: openai.OpenAI, engine: FakeEngine) -> None:
    engine.endless = True
    engine.pause_s = 0.01
    stream = program.completions.create(model="fake", prompt="ab", stream=True)
    next(iter(stream))
    assert engine.running
    stream.close()
    wait_for(lambda: len(engine.aborted) == 1)


def test_leaving_before_the_whole_answer_ends_its_request(
    server: LiveApp, engine: FakeEngine
) -> None:
    engine.endless = True
    engine.pause_s = 0.01
    body = json.dumps({"model": "fake", "prompt": "ab"})
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        wait_for(lambda: engine.running)
    wait_for(lambda: len(engine.aborted) == 1 and len(server.app.state.live) == 0)


def test_a_failure_before_the_answer(program: openai.OpenAI, engine: FakeEngine) -> None:
    engine.state = "starting"
    with pytest.raises(openai.InternalServerError) as caught:
        program.completions.create(model="fake", prompt="ab", stream=True)
    assert (caught.value.status_code, caught.value.code) == (503, "engine_unavailable")
    assert caught.value.response.headers["retry-after"] == "1"
    engine.info = None
    with pytest.raises(openai.InternalServerError):
        program.models.list()
    engine.info = INFO


@pytest.mark.parametrize("streamed", [False, True])
def test_a_failure_within_the_answer(
    program: openai.OpenAI, engine: FakeEngine, streamed: bool
) -> None:
    engine.fail_after = 2
    with pytest.raises(openai.APIError) as caught:
        list(program.completions.create(model="fake", prompt="abcd", stream=streamed))
    assert caught.value.code == "step_failed"
    assert caught.value.type == "server_error"


def test_the_server_stops_within_an_answer(
    server: LiveApp, program: openai.OpenAI, engine: FakeEngine
) -> None:
    engine.endless = True
    engine.pause_s = 0.01
    stream = program.completions.create(model="fake", prompt="ab", stream=True)
    parts = iter(stream)
    next(parts)
    server.server.should_exit = True
    began = time.monotonic()
    with pytest.raises(openai.APIError) as caught:
        list(parts)
    assert caught.value.code == "server_stopping"
    assert time.monotonic() - began < 3
