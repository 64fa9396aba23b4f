"""A page that is not there: a page for a browser, a problem document for a program."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

HTML = {"accept": "text/html,application/xhtml+xml"}


@pytest.mark.parametrize(
    ("language", "words"), [("en", "There is no such page"), ("zh-Hans", "没有这个页面")]
)
def test_a_browser_gets_a_page_in_its_language(
    client: TestClient, language: str, words: str
) -> None:
    answer = client.get("/no/such/page", headers={**HTML, "accept-language": language})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert words in answer.text
    assert "no/such" not in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "headers"), [("/no/such/page", {"accept": "*/*"}), ("/api/v1/nothing", HTML)]
)
def test_a_program_gets_a_problem_document(
    client: TestClient, path: str, headers: dict[str, str]
) -> None:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
