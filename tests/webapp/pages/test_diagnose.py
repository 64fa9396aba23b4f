"""The diagnosis as a page: the simulator's own answer, in words, from a form that is a link."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from fastapi.testclient import TestClient

from engine.catalog.units import time_label
from engine.simulator.diagnosis.diagnose import Diagnosis, diagnose
from engine.simulator.diagnosis.document import read_observations
from engine.simulator.search.cell import Cell
from engine.simulator.search.estimate import estimate
from webapp.i18n import Language, texts
from webapp.pages.diagnose_view import (
    VERDICTS,
    DiagnoseQuestion,
    diagnosis_messages,
    diagnosis_view,
    read_diagnose_question,
)
from webapp.pages.query import Knobs

ENGLISH = texts(Language.ENGLISH)
QUEUED = DiagnoseQuestion(ttft=1200.0, itl=6.9, queue=1150.0)


def found(question: DiagnoseQuestion) -> Diagnosis:
    return diagnose(read_observations(question.document()))


def test_the_form_is_a_link() -> None:
    query = {
        "model": "mixtral-8x7b", "hardware": "a100-sxm-80gb", "devices": "2", "weights": "fp16",
        "kv": "fp8", "batch": "4", "prompt": "300", "output": "50", "ttft": "80.5", "itl": "7",
        "itl_p99": "9", "queue": "0", "together": "on",
    }  # fmt: skip
    question = read_diagnose_question(query)
    assert question == DiagnoseQuestion(
        "mixtral-8x7b", "a100-sxm-80gb", 2, "fp16", "fp8", 4, 300, 50, 80.5, 7.0, 9.0, 0.0, True
    )
    (seen,) = read_observations(question.document())
    assert (seen.ttft, seen.itl, seen.itl_p99, seen.queue) == (0.0805, 0.007, 0.009, 0.0)
    assert (seen.cell.devices, seen.cell.batch, seen.together) == (2, 4, True)


def test_knobs_are_brought_into_range_and_what_was_measured_is_not() -> None:
    question = read_diagnose_question(
        {"ttft": "nan", "itl": "-3", "queue": "x", "itl_p99": "1e99", "batch": "0", "prompt": "²"}
    )
    assert question.ttft is None
    assert question.itl == -3
    assert question.queue is None
    assert question.itl_p99 == 1e99
    assert (question.batch, question.prompt) == (1, 1000)
    assert not DiagnoseQuestion().asked
    assert Knobs({"x_a": "7"}, "x_").whole("a", 1, 0, 5) == 5


def test_the_numbers_are_those_of_the_simulator() -> None:
    view = diagnosis_view(found(QUEUED), ENGLISH)
    start, stream = view.phases
    cell = Cell("llama-3.1-8b", "h100-sxm", prompt_tokens=1000, output_tokens=200)
    assert start.ideal == time_label(estimate(cell).ttft)
    assert stream.typical == time_label(estimate(replace(cell, times="typical")).itl)
    assert start.measured == "1.20 s"
    assert start.state == "slow"
    assert stream.state == "usual"
    assert start.gap is not None
    assert start.gap.ideal < start.gap.low < start.gap.typical < start.gap.high
    assert start.gap.high < (start.gap.measured or 0) < 100
    assert 97 < sum(part.width for part in start.parts) <= 100.001


def test_a_queue_is_named_with_its_evidence_and_what_it_costs() -> None:
    view = diagnosis_view(found(QUEUED), ENGLISH)
    assert view.verdict == "slow to start"
    assert view.sure
    assert not view.usual
    assert view.causes[0].words == "requests wait before their first step"
    assert view.causes[0].likely
    assert re.fullmatch(r"at [\d.]+ s: TTFT [\d.]+ s and ITL .* predicted with it",
                        view.causes[0].evidence)  # fmt: skip
    assert view.remedies[0].words == "without the likeliest cause"
    assert view.saves_of == "answer"


def test_a_usual_time_is_explained_by_its_parts() -> None:
    cell = Cell("llama-3.1-8b", "h100-sxm", times="typical", prompt_tokens=1000, output_tokens=200)
    usual = estimate(cell)
    question = DiagnoseQuestion(ttft=usual.ttft * 1e3, itl=usual.itl * 1e3)
    view = diagnosis_view(found(question), ENGLISH)
    assert view.usual
    assert view.verdict == "as usual"
    assert view.causes[0].words == "reading the weights"
    assert not view.causes[0].likely
    assert "between tokens, typically" in view.causes[0].evidence


def test_one_token_has_no_gap_to_draw() -> None:
    view = diagnosis_view(found(DiagnoseQuestion(ttft=40.0, output=1)), ENGLISH)
    assert view.phases[1].gap is None
    assert view.phases[1].typical == "—"
    assert view.saves_of == "start"


@pytest.mark.parametrize(
    ("ttft", "itl"), [(36, 7), (900, 7), (36, 40), (900, 40), (27, 5), (0.5, 7), (None, 7)]
)
def test_whatever_is_said_can_be_translated(ttft: float | None, itl: float) -> None:
    known = diagnosis_messages()
    answer = found(DiagnoseQuestion(ttft=ttft, itl=itl, batch=1, prompt=1000))
    assert answer.verdict in VERDICTS
    assert {cause.words for cause in answer.causes} <= known
    words = {item.words for item in answer.remedies if item.name != "remove-the-cause"}
    assert words <= known
    chinese = diagnosis_view(answer, texts(Language.CHINESE))
    for said in (chinese.verdict, *(cause.evidence for cause in chinese.causes)):
        assert re.search("[一-鿿]", said)


def test_the_page_and_its_fragment_answer_alike(client: TestClient) -> None:
    query = "ttft=1200&itl=6.9&queue=1150"
    page = client.get(f"/simulator/diagnose?{query}").text
    fragment = client.get(f"/fragments/diagnose?{query}").text
    assert fragment.strip() in page
    assert "requests wait before their first step" in page
    assert 'value="1200"' in page
    assert "Give the time to the first token" in client.get("/simulator/diagnose").text


def test_a_wrong_name_is_refused_with_its_field(client: TestClient) -> None:
    text = client.get("/fragments/diagnose?itl=7&model=%3Cb%3E").text
    assert "There is no diagnosis for this" in text
    assert "model" in text
    assert "<b>" not in text


def test_the_answer_is_a_file(client: TestClient) -> None:
    question = replace(QUEUED, batch=4, together=True)
    assert read_diagnose_question(dict(parse_qsl(question.query))) == question
    file = f"/simulator/diagnose.json?{question.query}"
    assert file.replace("&", "&amp;") in client.get(f"/fragments/diagnose?{question.query}").text
    posted = client.post("/api/v1/diagnose", json=question.document())
    assert client.get(file).json() == posted.json()
    assert client.get("/simulator/diagnose.json?model=nope&ttft=9").status_code == 422
