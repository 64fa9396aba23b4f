"""Questions about the real engine over REST: described, bounded, refused with reason."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from engine.inference.messages import Failed
from engine.inference.probes.desk import ProbeDesk
from engine.inference.probes.text_documents import TextTokens
from engine.inference.probes.texts import TEXT_KINDS as WORKER_TEXT_KINDS
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp, running_app, wait_for
from webapp.questions import TEXT_KINDS
from webapp.schemas.from_documents import schema_of
from webapp.schemas.probes import PROBES
from webapp.settings import Settings

TEXT = {"text": "some text"}
QUESTIONS: dict[str, dict[str, Any]] = {
    "embeddings": TEXT,
    "neighbours": {"token_id": 40, "k": 3},
    "analogy": {"plus": [40, 41], "minus": [42], "k": 3},
    "map": TEXT,
    "overview": TEXT,
    "attention-maps": TEXT,
    "attention": {**TEXT, "layer": 0, "head": 1},
    "attention-detail": {**TEXT, "layer": 1, "head": 1, "query": 2, "ablations": ["no-mask"]},
    "rotation": {**TEXT, "layer": 0, "position": 1},
    "hidden-norms": {"token_ids": [40, 41, 42]},
    "logit-lens": {**TEXT, "position": 0, "layer": -1},
    "feed-forward": {**TEXT, "layer": 0, "position": 0, "k": 2},
    "next-token": {"messages": [{"role": "user", "content": "Hi"}], "position": 3},
    "comparison": {**TEXT, "ablations": ["layer:1"], "max_tokens": 1},
    "fidelity": {**TEXT, "weights": "int8-channel", "kv_cache": "paged-int8"},
    "weight-row": {"matrix": "layers.0.q", "row": 3, "weights": "int4-g32"},
    "merges": {"text": "some"},
}


@pytest.fixture(scope="module")
def desk() -> ProbeDesk:
    return ProbeDesk(tiny_random_checkpoint())


def test_there_is_a_path_for_every_kind(desk: ProbeDesk) -> None:
    assert set(QUESTIONS) == set(PROBES)
    assert WORKER_TEXT_KINDS.keys() == TEXT_KINDS
    with pytest.raises(Exception, match="choose one of") as refusal:
        desk.answer("none", {})
    listed = set(str(refusal.value).removeprefix("choose one of ").split(", "))
    assert listed == set(PROBES) | {"tokenize", "detokenize"}


@pytest.mark.parametrize("kind", PROBES)
def test_the_answer_is_as_it_is_described(
    client: TestClient, engine: FakeEngine, desk: ProbeDesk, kind: str
) -> None:
    document = desk.answer(kind, QUESTIONS[kind])
    PROBES[kind].answer.model_validate(document)
    engine.answers[kind] = document
    answer = client.post(f"/api/v1/probes/{kind}", json=QUESTIONS[kind])
    assert answer.status_code == 200, answer.text
    assert answer.json() == document
    (asked,) = engine.asked
    assert (asked.kind, asked.arguments) == (kind, QUESTIONS[kind])


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("tokenize", {"text": "some text", "add_special": False}),
        ("tokenize", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("detokenize", {"ids": [40, 41], "skip_special": True}),
    ],
)
def test_tokens_both_ways(
    client: TestClient, engine: FakeEngine, desk: ProbeDesk, kind: str, body: dict[str, Any]
) -> None:
    engine.answers[kind] = desk.answer(kind, body)
    schema_of(TextTokens).model_validate(engine.answers[kind])
    answer = client.post(f"/api/v1/{kind}", json=body)
    assert (answer.status_code, answer.json()) == (200, engine.answers[kind])
    assert engine.asked[0].arguments == body


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("tokenize", {}, ""),
        ("tokenize", {"text": "a", "messages": []}, "/messages"),
        ("tokenize", {"text": ""}, "/text"),
        ("detokenize", {"ids": [-1]}, "/ids/0"),
        ("detokenize", {"ids": [True]}, "/ids/0"),
        ("probes/overview", {"text": "a", "token_ids": [1]}, ""),
        ("probes/attention", {"text": "a", "layer": 0}, "/head"),
        ("probes/overview", {"text": "a", "ablations": ["everything"]}, "/ablations/0"),
        ("probes/embeddings", {"token_ids": [1] * 65}, "/token_ids"),
        ("probes/neighbours", {"token_id": 1, "k": 51}, "/k"),
        ("probes/fidelity", {"weights": "int4"}, ""),
        ("probes/fidelity", {"weights": "int4", "held_out": 9, "token_ids": [1]}, ""),
        ("probes/fidelity", {"weights": "int4", "held_out": 513}, "/held_out"),
    ],
)
def test_what_is_refused_before_it_is_asked(
    client: TestClient, engine: FakeEngine, path: str, body: dict[str, Any], pointer: str
) -> None:
    answer = client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert not engine.asked


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("invalid_request", 422),
        ("template", 422),
        ("queue_full", 503),
        ("engine_unavailable", 503),
        ("engine_restarted", 503),
        ("engine_error", 500),
    ],
)
def test_refusals_of_the_engine(
    client: TestClient, engine: FakeEngine, code: str, status: int
) -> None:
    values: dict[str, int | str] = {"high": 7}
    engine.answers["overview"] = Failed("", code, "told", "text", "token_count", values)
    answer = client.post("/api/v1/probes/overview", json=TEXT)
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status == 503)
    if status == 422:
        problem = answer.json()
        assert (problem["reason"], problem["values"]) == ("token_count", values)
        assert problem["errors"][0]["pointer"] == "/text"


def test_an_engine_that_is_not_there(client: TestClient, engine: FakeEngine) -> None:
    engine.state = "starting"
    answer = client.post("/api/v1/tokenize", json={"text": "a"})
    assert (answer.status_code, answer.json()["code"]) == (503, "engine_unavailable")


@pytest.fixture
def held(engine: FakeEngine, desk: ProbeDesk) -> Iterator[tuple[LiveApp, FakeEngine]]:
    """A server whose engine answers nothing until a test lets it."""
    engine.answers = {kind: desk.answer(kind, QUESTIONS[kind]) for kind in ("merges", "neighbours")}
    engine.holds_answers = True
    with running_app(Settings(probe_queue=2), engine) as server:
        yield server, engine
        engine.holds_answers = False


def ask(server: LiveApp, kind: str) -> int:
    url = f"{server.url}/api/v1/probes/{kind}"
    return httpx2.post(url, json=QUESTIONS[kind], timeout=20).status_code


def test_one_probe_at_a_time_and_few_wait(held: tuple[LiveApp, FakeEngine]) -> None:
    server, engine = held
    with ThreadPoolExecutor(8) as people:
        answers = [people.submit(ask, server, "neighbours") for _ in range(5)]
        wait_for(lambda: sum(answer.done() for answer in answers) == 3, 10)
        assert [answer.result() for answer in answers if answer.done()] == [503] * 3
        assert len(engine.asked) == 1
        answers += [people.submit(ask, server, "merges") for _ in range(2)]
        wait_for(lambda: len(engine.asked) == 3, 10)
        assert [probe.kind for probe in engine.asked] == ["neighbours", "merges", "merges"]
        engine.holds_answers = False
        assert sorted(answer.result() for answer in answers) == [200] * 4 + [503] * 3
    assert len(engine.asked) == 4


def test_nothing_is_asked_for_someone_who_has_gone(held: tuple[LiveApp, FakeEngine]) -> None:
    server, engine = held
    with ThreadPoolExecutor(2) as people:
        first = people.submit(ask, server, "neighbours")
        wait_for(lambda: len(engine.asked) == 1, 10)
        body = json.dumps(QUESTIONS["neighbours"])
        with socket.create_connection(("127.0.0.1", server.port)) as impatient:
            head = "POST /api/v1/probes/neighbours HTTP/1.1\r\nhost: localhost\r\n"
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            impatient.sendall((head + body).encode())
            # Until it waits: then there is no room for a third one.
            wait_for(lambda: ask(server, "neighbours") == 503, 10)
        engine.holds_answers = False
        assert first.result() == 200
        wait_for(lambda: ask(server, "neighbours") == 200, 10)
    assert len(engine.asked) == 2
