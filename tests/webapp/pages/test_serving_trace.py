"""A trace of one's own on the serving page: served as recorded, or refused by line and column."""

from __future__ import annotations

import random

import pytest
from fastapi.testclient import TestClient

from engine.catalog.hardware import get_hardware
from engine.catalog.units import significant
from engine.errors import InvalidRequest
from engine.simulator.serving.simulation import simulate_serving
from engine.simulator.serving.trace import read_trace
from engine.simulator.serving.workload import TraceWorkload
from webapp.i18n import Language, texts
from webapp.pages.serving_question import ServingQuestion, read_trace_question
from webapp.pages.serving_runs import body_of, make_runs, read_runs
from webapp.pages.serving_view import serving_answer

ENGLISH = texts(Language.ENGLISH)


def trace_of(count: int, *, times: bool = True) -> str:
    draw = random.Random(3)
    lines = ["arrival_s,prompt_tokens,output_tokens" if times else "prompt_tokens,output_tokens"]
    for index in range(count):
        tokens = f"{draw.randint(20, 900)},{draw.randint(2, 60)}"
        lines.append(f"{index * 0.05:.2f},{tokens}" if times else tokens)
    return "\n".join(lines) + "\n"


TRACE = trace_of(30)


def test_a_trace_is_served_as_it_was_recorded() -> None:
    question = ServingQuestion(trace=TRACE, speed=2.0, seed=5)
    scenario = question.scenario()
    assert scenario.workload == TraceWorkload(read_trace(TRACE), 2.0)
    answer = serving_answer(question, ENGLISH)
    assert answer.recorded == 30
    assert answer.facts.ttft == simulate_serving(scenario).ttft
    assert answer.facts.totals.output_tokens == sum(
        row.output_tokens for row in read_trace(TRACE).rows
    )


def test_it_crosses_processes_with_its_question() -> None:
    question = ServingQuestion(trace=TRACE)
    (run,) = read_runs(make_runs(body_of([question])), [question])
    assert run.result.ttft == simulate_serving(question.scenario()).ttft


def test_without_times_requests_come_as_the_form_says() -> None:
    workload = ServingQuestion(trace=trace_of(20, times=False), rate=3.0).scenario().workload
    assert isinstance(workload, TraceWorkload)
    assert workload.arrivals is not None
    assert workload.size.requests == 20


def test_prefixes_of_a_trace_are_cached() -> None:
    line = '{"timestamp": 0, "input_length": 1100, "output_length": 4, "hash_ids": [1, 2, 3]}\n'
    answer = serving_answer(ServingQuestion(trace=line * 4, running=1), ENGLISH)
    assert (answer.facts.prefix_hit_rate or 0) > 0.5


def test_a_trace_that_takes_too_long_is_refused() -> None:
    rows = "0,100,100000\n" * 500
    question = ServingQuestion(trace="arrival_s,prompt_tokens,output_tokens\n" + rows)
    with pytest.raises(InvalidRequest) as refused:
        question.scenario()
    assert refused.value.field == "trace"


def test_the_cost_is_the_devices_over_the_tokens() -> None:
    own = serving_answer(ServingQuestion(trace=TRACE, usd=3.0, replicas=2, tensor=2), ENGLISH)
    assert own.cost is not None
    assert own.cost.hour == "$12.0"
    rate = own.facts.output_tokens_per_s * 3600 / 1e6
    assert own.cost.tokens == f"${significant(12.0 / rate)}"
    assert own.cost.own
    published = serving_answer(ServingQuestion(trace=TRACE), ENGLISH).cost
    price = get_hardware("h100-sxm").price
    assert published is not None
    assert price is not None
    assert published.hour.startswith(f"${significant(price.low)}")
    assert serving_answer(ServingQuestion(trace=TRACE, hardware="rpi5-8gb"), ENGLISH).cost is None


@pytest.mark.parametrize("path", ["/serving", "/fragments/serving"])
def test_the_page_takes_a_posted_trace(client: TestClient, path: str) -> None:
    answer = client.post(path, data={"trace": TRACE, "speed": "4", "usd": "2"})
    assert answer.status_code == 200
    assert "30 requests of your trace, 4 times as fast" in answer.text
    assert "at your $2.00 an hour" in answer.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the trace has no requests"),
        ("a,b\n1,2\n", "no column of prompt lengths"),
        ("arrival_s,prompt_tokens,output_tokens\n0,5,x\n", "line 2, column output_tokens"),
        ("{\n", "line 1: this is no JSON object"),
        ("<script>alert(1)</script>\n1\n", "no column of prompt lengths"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(
    client: TestClient, text: str, said: str
) -> None:
    page = client.post("/serving", data={"trace": text}).text
    assert said in page
    assert "<script>alert" not in page


def test_a_body_that_is_no_form_is_refused(client: TestClient) -> None:
    assert client.post("/fragments/serving", json={"trace": TRACE}).status_code == 415
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"trace=%ff", b"\xff", b"&".join([b"a=1"] * 100)):
        assert client.post("/fragments/serving", content=body, headers=kind).status_code == 422
    big = client.post("/fragments/serving", data={"trace": "x" * 300_000})
    assert big.status_code == 413


def test_the_question_of_a_posted_form() -> None:
    question = read_trace_question({"trace": " \n", "speed": "0", "rate": "5", "usd": "x"})
    assert (question.trace, question.speed, question.rate, question.usd) == ("\n", 0.001, 5.0, None)
