"""The page on DeepSeek-V4: its ratios, where the published ones stand, and what it assumes."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from engine.simulator.context_cost import FlopWeighting
from webapp.i18n import Language, texts
from webapp.pages.context_view import ContextQuestion, context_view, read_context_question

ENGLISH = texts(Language.ENGLISH)


def test_the_reports_ratios_and_the_crossover() -> None:
    view = context_view(ContextQuestion(), ENGLISH)
    assert (view.pro.flops_share, view.pro.kv_share) == ("27.2%", "10.5%")
    assert (view.flash.flops_share, view.flash.kv_share) == ("10.3%", "7.3%")
    assert view.pro.published == ("27%", "10%")
    assert view.crossover is not None
    assert 9_000 < view.crossover < 11_000


def test_the_crossover_is_where_the_lines_of_the_chart_cross() -> None:
    view = context_view(ContextQuestion(), ENGLISH)
    lines = {
        line.name: {x: y for x, y in line.points if y is not None} for line in view.flops.lines
    }
    assert lines["V4-Pro"][8192] > lines["V3.2"][8192]
    assert lines["V4-Pro"][16384] < lines["V3.2"][16384]


@pytest.mark.parametrize(
    "question",
    [
        ContextQuestion(exponent=19),
        ContextQuestion(weighting=FlopWeighting.RAW),
        ContextQuestion(kv="bf16"),
    ],
)
def test_published_ratios_stand_only_beside_what_they_are_of(question: ContextQuestion) -> None:
    assert all(model.published is None for model in context_view(question, ENGLISH).models)


def test_counted_once_each_pro_comes_near_and_flash_does_not() -> None:
    view = context_view(ContextQuestion(weighting=FlopWeighting.RAW), ENGLISH)
    assert view.pro.flops_share == "26.2%"
    assert view.flash.flops_share == "12.1%"


@pytest.mark.parametrize("value", ["9", "21", "", "x", "1e1", "１２", "-3"])
def test_a_context_that_is_not_on_offer_becomes_the_default(value: str) -> None:
    assert read_context_question({"context_log2": value, "kv": value, "weighting": value}) == (
        ContextQuestion()
    )


def test_the_page_says_which_weighting_it_assumes(client: TestClient) -> None:
    page = client.get("/simulator/deepseek-v4").text
    assert "how it weights each product we do not know" in page
    assert "27.2%" in page
    assert "10.5%" in page
    assert "10,041" in page
    raw = client.get("/fragments/deepseek?weighting=raw&context_log2=15").text
    assert "Every FLOP counts once" in raw
    assert "<html" not in raw
