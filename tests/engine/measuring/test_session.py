"""Whole measurements of a scripted server. Delays are compared with one another, and only from
below with the script: a busy machine adds to any of them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.errors import EngineUnavailable
from engine.measuring.client import Client, Stopped
from engine.measuring.load import Load
from engine.measuring.plan import Plan
from engine.measuring.point import Point
from engine.measuring.reply import Failure, Reply
from engine.measuring.session import Listener, Session
from engine.measuring.target import Address, Target
from tests.engine.measuring.fake_server import Script, serving

PLAN = Plan((64,), (1,), output_tokens=6, requests=5)


def client(url: str, timeout: float = 20.0, *, chat: bool = True) -> Client:
    target = Target(Address.of(url), "m", "chat" if chat else "completions")
    return Client(target, threading.Event(), timeout)


def measured(script: Script, plan: Plan = PLAN, *, chat: bool = True) -> list[Point]:
    with serving(script) as url:
        return list(Session(client(url, chat=chat), plan, Listener()).run())


def asked(script: Script, timeout: float = 20.0) -> Reply:
    with serving(script) as url:
        return client(url, timeout).ask("one two", 6)


def test_delays_show_up_where_they_belong() -> None:
    late, slow = Script(before=0.12, gap=0.005), Script(before=0.01, gap=0.03)
    (first,), (second,) = measured(late), measured(slow)
    assert first.ttft and second.ttft and first.itl and second.itl  # noqa: PT018
    assert first.ttft.p50 >= 0.12
    assert first.ttft.p50 > 2 * second.ttft.p50
    assert second.itl.p50 >= 0.03
    assert second.itl.p50 > 2 * first.itl.p50
    assert first.tokens_per_s is not None
    assert 0 < first.tokens_per_s < 6 / (0.12 + 5 * 0.005)


def test_longer_prompts_start_later() -> None:
    short, long = measured(
        Script(before_a_word=0.0005), Plan((32, 512), (1,), output_tokens=2, requests=4)
    )
    assert short.ttft and long.ttft  # noqa: PT018
    assert long.ttft.p50 > 3 * short.ttft.p50


@pytest.mark.parametrize("chat", [True, False])
def test_prompts_get_the_length_that_was_asked_for(chat: bool) -> None:
    script = Script(tokens_a_word=2, template_tokens=31)
    for point in measured(script, Plan((128, 512), (1,), 2, 3), chat=chat):
        assert point.prompt_tokens == pytest.approx(point.wanted_tokens, abs=2)
    assert {request["path"] for request in script.seen} == {
        "/v1/chat/completions" if chat else "/v1/completions"
    }


def test_as_many_requests_as_said_are_under_way() -> None:
    script = Script(before=0.05, gap=0.002)
    (point,) = measured(script, Plan((64,), (4,), 6, 16))
    assert script.most_running == 4
    assert (len(point.good), point.failures) == (16, {})
    assert point.busy_window is not None
    prompts = [request["messages"][0]["content"] for request in script.seen]
    assert len(set(prompts)) == len(prompts)


def test_more_clients_make_more_tokens() -> None:
    one, four = measured(Script(before=0.03, gap=0.005), Plan((64,), (1, 4), 6, 16))
    assert one.tokens_per_s and four.tokens_per_s  # noqa: PT018
    assert four.tokens_per_s > 1.5 * one.tokens_per_s


def test_many_tokens_a_chunk() -> None:
    (point,) = measured(Script(gap=0.04, tokens_a_chunk=4), Plan((64,), (1,), 16, 4))
    assert point.tokens_a_read == 4
    assert point.itl and point.gaps  # noqa: PT018
    assert point.gaps.p50 == pytest.approx(4 * point.itl.p50, rel=0.3)
    assert point.output_tokens == 16


def test_a_server_that_counts_nothing() -> None:
    (point,) = measured(Script(usage=False, gap=0.002))
    assert not point.counted
    assert (point.prompt_tokens, point.output_tokens) == (None, 6)


def test_a_server_that_does_not_stream() -> None:
    (point,) = measured(Script(streams=False, gap=0.002))
    assert (len(point.good), point.itl) == (5, None)
    assert not point.good[0].streamed


@pytest.mark.parametrize(
    ("script", "field", "usage"),
    [
        (Script(), "max_tokens", True),
        (Script(limit_field="max_completion_tokens"), "max_completion_tokens", True),
        (Script(takes_stream_options=False), "max_tokens", False),
    ],
)
def test_fields_are_found_that_the_server_takes(script: Script, field: str, usage: bool) -> None:
    (point,) = measured(script)
    assert len(point.good) == 5
    last = script.seen[-1]
    assert (field in last, "stream_options" in last) == (True, usage)


def test_rate_limits_are_counted_and_waited_for() -> None:
    script = Script(
        status=lambda number: 429 if number > 3 and number % 2 else 200,
        headers={"Retry-After": "0.05"},
    )
    (point,) = measured(script, Plan((64,), (1,), 4, 8))
    assert len(point.good) + point.failures["rate limited"] == 8
    assert point.failures["rate limited"] >= 3
    limited = [reply for reply in point.replies if not reply.ok]
    after = [r for r in point.replies if r.sent > limited[0].sent]
    assert after[0].sent - limited[0].sent >= 0.05
    assert point.failure_details["rate limited"] == "429 as the script says"


@pytest.mark.parametrize(
    ("script", "failure", "words"),
    [
        (Script(status=lambda number: 500), Failure.HTTP_ERROR, "500 as the script says"),
        (Script(status=lambda n: 500, reply=b"<b>"), Failure.HTTP_ERROR, "500 Internal"),
        (Script(status=lambda n: 502, reply=b"[3]"), Failure.HTTP_ERROR, "502 Bad Gateway"),
        (Script(status=lambda n: 307), Failure.HTTP_ERROR, "307"),
        (Script(cut_after=3), Failure.CUT, ""),
        (Script(error_after=3), Failure.ERROR_EVENT, "out of memory"),
        (Script(most_tokens=0), Failure.EMPTY, "no text"),
    ],
)
def test_each_failure_has_its_name(script: Script, failure: Failure, words: str) -> None:
    reply = asked(script)
    assert reply.failure is failure
    assert words in reply.detail


@pytest.mark.parametrize("script", [Script(before=5), Script(gap=0.2)], ids=["silent", "slow"])
def test_an_answer_that_takes_too_long_is_a_timeout(script: Script) -> None:
    """Also one whose chunks keep coming: the limit is that of the whole answer."""
    with serving(script) as url:
        start = time.monotonic()
        reply = client(url, 0.5).ask("one", 1000)
    assert reply.failure is Failure.TIMEOUT
    assert time.monotonic() - start < 4


@contextmanager
def speaking(words: bytes) -> Iterator[str]:
    """A server that says these bytes to anyone, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                with one:
                    one.recv(2**16)
                    one.sendall(words)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("words", "failure"),
    [
        (b"hello\r\n\r\n", Failure.DISCONNECTED),
        (b"", Failure.DISCONNECTED),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Failure.CUT),
        (b"HTTP/1.1 200 OK\r\n\r\ndata: nonsense\n\n", Failure.MALFORMED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\ndata: {}\n\n", Failure.CUT),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{", Failure.MALFORMED),
        (b"HTTP/1.1 429 No\r\nRetry-After: Mon\r\n\r\n", Failure.RATE_LIMITED),
    ],
)
def test_servers_that_speak_something_else(words: bytes, failure: Failure) -> None:
    with speaking(words) as url:
        assert client(url, 5).ask("one", 2).failure is failure


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    reply = client(f"http://127.0.0.1:{port}").ask("one", 2)
    assert reply.failure is Failure.DISCONNECTED


def test_a_measurement_needs_one_answer() -> None:
    with pytest.raises(EngineUnavailable, match="401 as the script says"):
        measured(Script(status=lambda number: 401))


def test_a_point_without_any_answer_is_given_up() -> None:
    script = Script(status=lambda number: 200 if number <= 3 else 500)
    (point,) = measured(script, Plan((64,), (1,), 4, 100))
    assert (len(point.replies), point.planned) == (5, 100)
    assert point.failures == {"HTTP error": 5}


def test_a_stop_ends_what_is_under_way() -> None:
    with serving(Script(gap=0.02)) as url:
        one = client(url)
        threading.Timer(0.2, one.stop.set).start()
        with pytest.raises(Stopped):
            one.ask("one", 10_000)


def test_an_interrupt_keeps_what_was_measured() -> None:
    class Impatient(Listener):
        def reply(self, reply: Reply) -> None:
            raise KeyboardInterrupt

    with serving(Script()) as url:
        plan = Plan((64, 128), (1,), 4, 8)
        points = list(Session(client(url), plan, Impatient()).run())
    (point,) = points
    assert (len(point.replies), point.planned) == (1, 8)


def test_a_fault_of_a_client_is_not_swallowed() -> None:
    def told(reply: Reply) -> None:
        raise ZeroDivisionError

    with serving(Script()) as url, pytest.raises(ZeroDivisionError):
        Load(client(url), ["one"] * 4, 2, 2, 0.0, told).run()
