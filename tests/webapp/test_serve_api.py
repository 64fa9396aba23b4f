"""A service under load over HTTP: short runs at once, long ones as jobs."""

from __future__ import annotations

import json
import time
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient

from engine.simulator.serving.simulation import simulate_serving
from tests.webapp.fake_engine import FakeEngine
from webapp.app import create_app
from webapp.schemas.serve import JobDocument, ServeRequest, ServingDocument
from webapp.settings import Settings

Body = dict[str, Any]


def body(requests: int = 40, **changes: Any) -> Body:
    return {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "workload": {
            "kind": "drawn",
            "requests": requests,
            "arrivals": {"kind": "poisson", "rate": 30.0},
            "prompts": {"kind": "fixed", "tokens": 200},
            "outputs": {"kind": "fixed", "tokens": 20},
        },
        **changes,
    }


LONG = body(1500)
ENDLESS = body(100_000)


def reference(question: Body) -> object:
    scenario = ServeRequest.model_validate_json(json.dumps(question)).to_scenario()
    return simulate_serving(scenario).to_document()


def wait_for(client: TestClient, place: str, *states: str) -> Body:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        document = client.get(place).json()
        if document["state"] in states:
            return document
        time.sleep(0.05)
    raise AssertionError(f"the job never was {states}")


def test_a_short_run_is_answered_at_once(client: TestClient) -> None:
    answer = client.post("/api/v1/serve", json=body())
    assert answer.status_code == 200
    ServingDocument.model_validate(answer.json())
    assert answer.json() == reference(body())


def test_a_long_run_is_a_job_with_the_same_answer(client: TestClient) -> None:
    answer = client.post("/api/v1/serve", json=LONG)
    assert answer.status_code == 202
    place = answer.headers["location"]
    assert place == f"/api/v1/jobs/{answer.json()['id']}"
    done = wait_for(client, place, "done", "failed")
    JobDocument.model_validate(done)
    assert done["progress"]["answered"] == done["progress"]["requests"] == 1500
    assert done["result"] == reference(LONG)
    assert client.delete(place).status_code == 204
    assert client.get(place).json()["code"] == "job_not_found"
    assert client.delete(place).status_code == 404


def test_a_cancelled_job_leaves_no_process(client: TestClient) -> None:
    place = client.post("/api/v1/serve", json=ENDLESS).headers["location"]
    wait_for(client, place, "running")
    deadline = time.monotonic() + 30
    while client.get(place).json()["progress"]["answered"] == 0:
        assert time.monotonic() < deadline, "no progress was told"
        time.sleep(0.1)
    processes = psutil.Process().children(recursive=True)
    running = [p for p in processes if "webapp.job_process" in p.cmdline()]
    assert len(running) == 1
    assert client.delete(place).status_code == 204
    running[0].wait(timeout=10)


def test_jobs_are_bounded_and_a_short_run_does_not_wait_for_them() -> None:
    settings = Settings(job_slots=1, jobs_kept=2)
    with TestClient(create_app(settings, FakeEngine()), base_url="http://localhost") as client:
        places = [client.post("/api/v1/serve", json=ENDLESS).headers["location"] for _ in range(2)]
        refused = client.post("/api/v1/serve", json=ENDLESS)
        assert refused.status_code == 503
        assert refused.json()["code"] == "queue_full"
        assert client.post("/api/v1/serve", json=body()).status_code == 200
        assert client.delete(places[0]).status_code == 204
        wait_for(client, places[1], "running")
        assert client.post("/api/v1/serve", json=ENDLESS).status_code == 202


def test_a_job_that_takes_too_long_fails_with_a_problem() -> None:
    settings = Settings(job_timeout_s=0.2)
    with TestClient(create_app(settings, FakeEngine()), base_url="http://localhost") as client:
        place = client.post("/api/v1/serve", json=ENDLESS).headers["location"]
        problem = wait_for(client, place, "failed")["problem"]
        assert problem["status"] == 422
        assert problem["errors"][0]["pointer"] == "/workload/requests"


def test_an_ended_job_is_forgotten() -> None:
    settings = Settings(job_timeout_s=0.05, job_keep_s=0.3)
    with TestClient(create_app(settings, FakeEngine()), base_url="http://localhost") as client:
        place = client.post("/api/v1/serve", json=ENDLESS).headers["location"]
        wait_for(client, place, "failed")
        time.sleep(0.4)
        assert client.get(place).status_code == 404


def test_a_trace_is_served_as_it_was_recorded(client: TestClient) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
        f"2023-11-16 18:15:{second:02d}.5,{100 + second},7\n" for second in range(30)
    )
    question = body(workload={"kind": "trace", "text": text, "speed": 2})
    document = client.post("/api/v1/serve", json=question).json()
    assert document["requests"]["finished"]["value"] == 30
    assert document["throughput"]["span"]["value"] == pytest.approx(14.5, abs=0.2)


WRONG: list[tuple[Body, str]] = [
    (body(model="no-such-model"), "/model"),
    (body(hardware="no-such-device"), "/hardware"),
    (body(hardware="rtx-4090", model="llama-3.1-70b"), "/hardware"),
    (body(engine={"policy": "whim"}), "/engine/policy"),
    (body(engine={"max_running": 0}), "/engine/max_running"),
    (body(200_000, model="no-such-model"), "/model"),
    (body(model=7), "/model"),
    (body(workload={**body()["workload"], "requests": 0}), "/workload/requests"),
    (
        body(workload={**body()["workload"], "arrivals": {"kind": "poisson", "rate": 0}}),
        "/workload/arrivals/rate",
    ),
    (
        body(workload={**body()["workload"], "outputs": {"kind": "fixed"}}),
        "/workload/outputs/tokens",
    ),
    (body(workload={**body()["workload"], "drawn": 1}), "/workload/drawn"),
    (body(workload={"kind": "trace", "text": ""}), "/workload/text"),
    (
        body(workload={**body()["workload"], "prompts": {"kind": "uniform", "low": 9, "high": 3}}),
        "/workload/prompts/high",
    ),
    (body(workload={"kind": "trace", "text": "a,b\n1,2\n"}), "/workload/text"),
    (
        body(workload={"kind": "trace", "text": "prompt_tokens,output_tokens\n1,2\n"}),
        "/workload/arrivals",
    ),
    (body(replicas=1024, layout={"data": 1024}), "/replicas"),
    (
        body(
            200_000,
            workload={
                **body(200_000)["workload"],
                "outputs": {"kind": "fixed", "tokens": 2_000_000},
            },
        ),
        "/workload/requests",
    ),
]


@pytest.mark.parametrize(("question", "pointer"), WRONG)
def test_what_is_wrong_is_named(client: TestClient, question: Body, pointer: str) -> None:
    answer = client.post("/api/v1/serve", json=question)
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_pages_of_other_sites_cancel_nothing(client: TestClient) -> None:
    other_site = {"origin": "https://other.example", "sec-fetch-site": "cross-site"}
    place = client.post("/api/v1/serve", json=ENDLESS).headers["location"]
    assert client.delete(place, headers=other_site).status_code == 403
    assert client.get(place).status_code == 200
    client.delete(place)


def test_what_describes_the_run_can_be_asked_again(client: TestClient) -> None:
    document = client.post("/api/v1/serve", json=body()).json()
    again = client.post("/api/v1/serve", json=document["scenario"])
    assert again.json() == document
