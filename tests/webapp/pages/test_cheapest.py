"""The search for the cheapest as a page: the API's own answer, in words and as a front."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from fastapi.testclient import TestClient

from engine.catalog.units import significant, time_label
from engine.simulator.search.cheapest import SearchResult, cheapest
from engine.simulator.search.confirming import confirm
from engine.simulator.search.search_document import read_requirement, search_document
from webapp.i18n import Language, texts
from webapp.pages.cheapest_view import (
    CheapestQuestion,
    FoundView,
    found_view,
    miss_words,
    read_cheapest_question,
    search_messages,
)

ENGLISH, CHINESE = texts(Language.ENGLISH), texts(Language.CHINESE)
SMALL = CheapestQuestion(
    "llama-3.1-8b", rate=8, prompt=500, output=50, ttft=200, itl=20,
    hardware=("h100-sxm", "rtx-4090", "t4"), devices=(1, 2), weights=("bf16",),
)  # fmt: skip


def searched(question: CheapestQuestion, finalists: int = 0) -> tuple[SearchResult, FoundView]:
    result = cheapest(read_requirement(question.body()))
    runs = [confirm(result.requirement, item) for item in result.best[:finalists]]
    return result, found_view(dict(search_document(result, runs)), ENGLISH)


def test_the_answer_is_that_of_the_search() -> None:
    result, view = searched(SMALL, finalists=1)
    assert (view.found, view.missed) == (len(result.best), len(result.failed))
    first, shown = result.best[0], view.best[0]
    assert shown.price == f"${significant(first.usd_per_hour or 0)}"
    assert shown.ttft == time_label(first.ttft or 0)
    assert shown.replicas == first.replicas
    assert shown.confirmed is not None
    assert shown.confirmed.keeps
    assert view.best[1].confirmed is None
    assert view.front is not None
    assert len(view.front.lines[0].points) == len(view.front_rows) == len(result.front)
    ys = [y for _, y in view.front.lines[0].points]
    assert ys == sorted(ys)  # type: ignore[type-var]


def test_every_reason_has_words_in_both_languages() -> None:
    result, view = searched(replace(SMALL, ttft=30, itl=6, replicas=1, rate=50))
    reasons = {item.fails for item in result.failed}
    result, _ = searched(replace(SMALL, model="llama-3.1-70b", ttft=2000, itl=30))
    reasons |= {item.fails for item in result.failed}
    kinds = {str(reason).partition(":")[0] for reason in reasons}
    assert kinds == {"TTFT", "ITL", "load", "memory"}
    for reason in reasons:
        assert reason is not None
        assert re.search("[一-鿿]", miss_words(reason, CHINESE)), reason
    assert not view.best
    assert set(result.requirement.hardware or ()) == set(SMALL.hardware)
    assert miss_words("something new", ENGLISH) == "something new"
    assert any("Little" in text for text in search_messages())


def test_the_form_is_a_link_of_lists() -> None:
    question = read_cheapest_question(
        [
            ("model", "qwen3-32b"), ("rate", "2.5"), ("prompt", "300"), ("output", "1"),
            ("ttft", "800"), ("itl", "40"), ("devices", "8"), ("devices", "2"), ("devices", "3"),
            ("weights", "fp8"), ("hardware", "h100-sxm"), ("hardware", "t4"), ("replicas", "9"),
            ("utilization", "80"),
        ]
    )  # fmt: skip
    assert question == CheapestQuestion(
        "qwen3-32b", 2.5, 300, 2, 800.0, 40.0, ("h100-sxm", "t4"), (2, 8), ("fp8",), 9, 80, True
    )
    assert question.body()["ttft"] == 0.8
    assert not read_cheapest_question([]).asked


def test_the_page_searches_when_it_is_asked(client: TestClient) -> None:
    form = client.get("/simulator/search").text
    assert 'hx-trigger="load' in form
    query = (
        "model=llama-3.1-8b&rate=8&prompt=500&output=50&ttft=200&itl=20&devices=1&weights=bf16"
        "&hardware=h100-sxm&hardware=t4"
    )
    page = client.get(f"/simulator/search?{query}").text
    assert "1 × (1 × H100 SXM5 80GB · bf16)" in page
    assert "Served once more by the simulated scheduler" in page
    assert "Why not the others (1)" in page
    assert 'hx-trigger="load' not in page
    link = re.search(r'href="(/serving\?[^"]+)"', page)
    assert link
    assert client.get(link[1].replace("&amp;", "&")).status_code == 200


@pytest.mark.parametrize("query", ["model=nope", "hardware=nope", "ttft=0.001&itl=0.001"])
def test_a_search_without_an_answer_says_why(client: TestClient, query: str) -> None:
    text = client.get(f"/fragments/search?rate=4&{query}").text
    assert "Nothing was searched" in text or "keeps the limits. What each misses" in text


def test_the_answer_is_a_file(client: TestClient) -> None:
    question = replace(SMALL, rate=8.0, ttft=200.0, itl=20.0, asked=True)
    assert read_cheapest_question(parse_qsl(question.query)) == question
    page = client.get(f"/fragments/search?{question.query}").text
    for file in ("search.json", "search.csv"):
        assert f'href="/simulator/{file}?{question.query.replace("&", "&amp;")}"' in page

    result, _ = searched(SMALL)
    document = client.get(f"/simulator/search.json?{question.query}").json()
    posted = client.post("/api/v1/search", json={**SMALL.body(), "finalists": 2})
    assert document == posted.json()
    table = client.get(f"/simulator/search.csv?{question.query}")
    assert table.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert len(rows) == len(result.best) + len(result.failed)
    assert float(rows[0]["ttft [s]"]) == result.best[0].ttft
    assert [row["fails"] for row in rows] == ["" for _ in result.best] + [
        item.fails for item in result.failed
    ]
    assert client.get("/simulator/search.csv?model=nope").status_code == 422
