"""The serving page: its run is the simulator's, to scale, and links are scenarios."""

from __future__ import annotations

import csv
import html
import io
import re
from dataclasses import fields, replace
from urllib.parse import parse_qsl

import pytest
from fastapi.testclient import TestClient

from engine.errors import InvalidRequest, QueueFull
from engine.simulator.serving.arrivals import ClosedLoop
from engine.simulator.serving.simulation import simulate_serving
from webapp import answers, json_codec, simulations
from webapp.i18n import Language, texts
from webapp.pages.serving_question import ServingQuestion, read_serving_question
from webapp.pages.serving_runs import body_of, make_runs, read_runs, run_serving
from webapp.pages.serving_view import KNEE, draw_knee, knee_questions, serving_answer

ENGLISH = texts(Language.ENGLISH)
SMALL = ServingQuestion(requests=40, prompt=200, output=20, rate=20.0)


def test_the_run_is_the_simulators_and_the_same_each_time() -> None:
    answer = serving_answer(SMALL, ENGLISH)
    direct = simulate_serving(SMALL.scenario())
    assert answer.facts.ttft == direct.ttft
    assert answer.facts.series == direct.series
    assert serving_answer(SMALL, ENGLISH).rows == answer.rows


def test_bars_are_in_order_and_to_scale() -> None:
    answer = serving_answer(SMALL, ENGLISH)
    assert answer.gantt is not None
    assert len(answer.gantt.bars) == 40
    ends = []
    for bar in answer.gantt.bars:
        assert bar.waiting[0] + bar.waiting[1] == pytest.approx(bar.prefill[0])
        assert bar.prefill[0] + bar.prefill[1] == pytest.approx(bar.decode[0])
        ends.append(bar.decode[0] + bar.decode[1])
    assert max(ends) == pytest.approx(answer.gantt.width)


def test_a_higher_load_waits_longer() -> None:
    light, heavy = (
        serving_answer(ServingQuestion(requests=120, rate=rate), ENGLISH).facts
        for rate in (0.5, 200.0)
    )
    assert light.ttft is not None
    assert heavy.ttft is not None
    assert heavy.ttft.percentile(95) > 2 * light.ttft.percentile(95)
    assert heavy.output_tokens_per_s > light.output_tokens_per_s


def test_the_knee_has_a_point_for_each_load() -> None:
    knee = draw_knee([run_serving(each) for each in knee_questions(SMALL)], ENGLISH)
    for chart in knee.plots:
        for line in chart.lines:
            assert len(line.points) == len(KNEE)
            assert [x for x, _ in line.points] == sorted(x for x, _ in line.points)


def test_a_link_is_a_scenario() -> None:
    question = read_serving_question(
        {"rate": "2.5", "shared": "40", "replicas": "3", "routing": "prefix-aware", "spread": "0"}
    )
    scenario = question.scenario()
    assert (scenario.replicas, scenario.routing.value) == (3, "prefix-aware")
    assert scenario.engine.prefix_caching
    assert scenario.workload.size.prompt == 1000


def test_clients_cache_memory_and_prefill_are_knobs(client: TestClient) -> None:
    query = {
        "clients": "6", "think": "0.5", "kv": "fp8", "utilization": "80", "prefill": "whole",
        "requests": "40", "output": "20",
    }  # fmt: skip
    question = read_serving_question(query)
    scenario, usual = question.scenario(), ServingQuestion().scenario()
    assert scenario.workload.closed_loop == ClosedLoop(6, 0.5)
    assert scenario.deployment.kv == "fp8"
    assert scenario.deployment.memory_utilization == 0.8
    assert not scenario.engine.chunked_prefill
    assert (usual.workload.closed_loop, usual.engine.chunked_prefill) == (None, True)
    assert max(run_serving(question).result.series.means["running"]) <= 6
    assert [each.clients for each in knee_questions(question)] == [1, 2, 3, 4, 6, 8, 9, 12]
    with pytest.raises(InvalidRequest, match="too long for the page"):  # no batch shares a step
        ServingQuestion(clients=1, requests=1000, spread=0).scenario()
    page = client.get(f"/serving?{question.query}").text
    for chosen in (
        'value="whole" selected',
        'name="think" min="0" max="3600" step="any" value="0.5',
    ):
        assert chosen in page
    assert "There is no prediction" in client.get("/serving?kv=nope").text


def test_the_run_and_its_requests_are_files_behind_links(client: TestClient) -> None:
    question = replace(SMALL, spread=0.4, shared=50, usd=2.5)
    assert read_serving_question(dict(parse_qsl(question.query))) == question
    page = client.get(f"/serving?{question.query}").text
    links = [html.unescape(found) for found in re.findall(r'href="([^"]+)" download', page)]
    document, table = (client.get(link) for link in links)

    run = run_serving(question)
    assert document.headers["content-type"] == "application/json"
    assert document.json() == json_codec.loads(json_codec.dumps(run.result.to_document()))
    assert table.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [float(row["ttft [s]"]) for row in rows] == [times.ttft for times in run.first]
    assert [row["output_tokens"] for row in rows] == [str(each.output_tokens) for each in run.first]


def test_files_are_bounded_as_the_page_is(client: TestClient) -> None:
    for file in ("run.json", "requests.csv"):
        assert client.get(f"/serving/{file}?model=nope").status_code == 422
        assert client.get(f"/serving/{file}?requests=1000&output=10000").status_code == 422


def test_the_file_of_a_long_run_is_made_in_another_process(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_TASKS", {})  # a child has its own
    query = "requests=400&output=500"
    assert len(client.get(f"/serving/requests.csv?{query}").text.splitlines()) == 401
    assert client.get("/serving/requests.csv?requests=20&output=5").status_code == 422


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("model=nope", "There is no prediction"),
        ("model=llama-3.1-405b", "leave no room"),
        ("requests=1000&output=10000", "too long for the page"),
        ("rate=nan&burst=inf&spread=-1&requests=99999999999999999999", ""),
        ("routing=%3Cb%3E&seed=x", ""),
    ],
)
def test_whatever_a_link_says_the_page_answers(client: TestClient, query: str, said: str) -> None:
    answer = client.get(f"/serving?{query}")
    assert answer.status_code == 200
    assert said in answer.text
    assert client.get(f"/fragments/knee?{query}&requests=20&output=5").status_code == 200


def test_runs_cross_processes_unchanged() -> None:
    refusing = replace(SMALL, requests=20, ttft=0, tpot=0, prompt=100_000, spread=0.0)
    questions = (SMALL, refusing)
    for made, question in zip(
        read_runs(make_runs(body_of(questions)), questions), questions, strict=True
    ):
        direct = run_serving(question)
        assert made.first == direct.first
        for field in fields(direct.result):
            if field.name not in ("scenario", "cost_model"):
                assert getattr(made.result, field.name) == getattr(direct.result, field.name)
        assert made.result.scenario == question.scenario()
        assert made.result.to_document() == direct.result.to_document()


def test_long_runs_and_the_knee_leave_the_interpreter_of_this_process_alone(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = ServingQuestion(requests=400, output=500)
    assert long.scenario().effort > simulations.SHORT_EFFORT_S
    expected = serving_answer(long, ENGLISH).rows[0].values[2]
    monkeypatch.setattr(answers, "_TASKS", {})  # a child has its own
    answer = client.get("/fragments/serving?requests=400&output=500")
    assert "There is no prediction" not in answer.text
    assert expected in answer.text
    assert "There is no prediction" not in client.get("/fragments/knee").text
    assert "There is no prediction" in client.get("/fragments/serving?requests=20&output=5").text


@pytest.mark.parametrize(
    "page",
    ["simulator", "fragments/simulator", "serving", "fragments/serving", "fragments/knee"],
)
def test_where_too_many_wait_the_page_says_so(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    def full(runner: simulations.SimulationRunner) -> None:
        raise QueueFull("too many simulations are waiting; try again in a moment")

    monkeypatch.setattr(simulations.SimulationRunner, "slot", full)
    answer = client.get(f"/{page}")
    assert answer.status_code == 200
    assert "too many simulations are waiting" in answer.text


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (
            "serving?requests=0&output=20&prompt=abc",
            ["requests was 0: taken as 20", "prompt was abc: taken as 1,000"],
        ),
        ("simulator?batch=0&hit=150", ["batch was 0: taken as 1", "hit was 150: taken as 100"]),
        ("simulator?compare=on&b_tensor=9999", ["b_tensor was 9999: taken as 64"]),
    ],
)
def test_a_number_that_is_moved_is_said(client: TestClient, link: str, said: list[str]) -> None:
    page = client.get(f"/{link}").text
    assert re.findall(r"<li>(\w+ was [^<]*)</li>", page) == said


@pytest.mark.parametrize("link", ["serving?requests=20&rate=2.50&output=5", "simulator?batch=2"])
def test_a_number_that_is_taken_is_not(client: TestClient, link: str) -> None:
    assert ": taken as " not in client.get(f"/{link}").text
