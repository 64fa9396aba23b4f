"""What the simulator's pages refuse is said in the reader's language."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from engine.errors import InvalidRequest
from engine.refusals import refused
from webapp.i18n import Language, texts
from webapp.pages.refusal_words import refusal_words

REFUSED = re.compile(r'<p class="notice"[^>]*>[^<]*(?:<code>.*?</code>[^<]*)?<span lang="(.*?)">')


@pytest.mark.parametrize(
    "address",
    [
        "/fragments/simulator?model=nothing-like-it",
        "/fragments/simulator?model=llama-3.1-8b&stages=64",
        "/fragments/simulator?engine=nothing",
        "/fragments/simulator?hardware=own",
        "/fragments/simulator?model=own",
        "/fragments/sweep?x=batch&x_values=8:1:x2",
        "/fragments/sweep?x=batch&x_values=many",
        "/fragments/sweep?x=batch&x_values=0",
        "/fragments/sweep?x=weights&x_values=bf16,nothing",
        "/fragments/search?model=nothing&rate=1&ttft=500&itl=30",
        "/fragments/diagnose?model=nothing&ttft=100",
        # What was measured cannot be nothing, less, or longer than eleven days.
        "/fragments/diagnose?model=llama-3.1-8b&ttft=0",
        "/fragments/diagnose?model=llama-3.1-8b&itl=-9",
        "/fragments/diagnose?model=llama-3.1-8b&itl=1e12",
        "/fragments/diagnose?model=llama-3.1-8b&ttft=100&queue=-1",
        "/fragments/serving?model=deepseek-v3&hardware=h100-sxm",
        "/fragments/serving?weights=nothing",
    ],
)
def test_the_pages_refuse_in_chinese(client: TestClient, address: str) -> None:
    answer = client.get(f"{address}&lang=zh")
    assert answer.status_code == 200
    assert REFUSED.findall(answer.text) == ["zh-Hans"]


def test_a_refusal_has_its_values_in_each_language() -> None:
    error = refused("values_at_most", field="x_values", high="10,000")
    english = refusal_words(error, texts(Language.ENGLISH))
    assert english == ("x_values", error.message, "en")
    chinese = refusal_words(error, texts(Language.CHINESE))
    assert (chinese.field, chinese.lang) == ("x_values", "zh-Hans")
    assert "10,000" in chinese.text
    assert chinese.text != error.message


def test_what_has_no_code_stays_english_and_says_so() -> None:
    words = refusal_words(InvalidRequest("plain"), texts(Language.CHINESE))
    assert words == (None, "plain", "en")
