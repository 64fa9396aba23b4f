"""Search over lessons: what is on the page is found, by section, in the reader's language."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from webapp.i18n import Language
from webapp.lessons.search import LessonIndex, Section, sections_of
from webapp.pages import lesson_routes

PAGE = """<html><body><nav>queries</nav><main><nav>queries</nav><noscript>queries</noscript>
<h1>One</h1><p>A lead about queries.</p>
<section id="first"><h2>Queries &amp; keys</h2><p>Each query meets <b>every</b> key.</p>
<select><option>queries</option></select></section>
<section id="second"><h2>Values</h2><p>They are mixed.</p></section></main></body></html>"""


def index() -> LessonIndex:
    made = LessonIndex()
    made.add(sections_of("one", "One", PAGE))
    return made


def test_sections_hold_the_words_of_the_page() -> None:
    assert index().sections == [
        Section("one", "One", "", "One", "One A lead about queries."),
        Section("one", "One", "first", "Queries & keys", "Each query meets every key."),
        Section("one", "One", "second", "Values", "They are mixed."),
    ]


def test_headings_weigh_more_and_all_words_must_be_there() -> None:
    assert [hit.anchor for hit in index().search("QUERIES")] == ["first", ""]
    assert [hit.anchor for hit in index().search("query key")] == ["first"]
    assert index().search("query values") == []
    assert index().search("  ") == []


def test_a_hit_shows_the_words_around() -> None:
    (hit,) = index().search("mixed")
    assert (hit.before, hit.match, hit.after) == ("They are ", "mixed", ".")


def test_the_page_finds_in_both_languages_and_repeats_nothing_as_markup(
    client: TestClient,
) -> None:
    english = client.get("/learn?q=rotary dial").text + client.get("/learn?q=dial").text
    assert '/learn/vectors#dial"' in english
    chinese = client.get("/fragments/lesson-search?q=表盘&lang=zh").text
    assert '/learn/vectors#dial"' in chinese
    hostile = client.get("/learn", params={"q": "<script>alert(1)</script>" * 20}).text
    assert "<script>alert" not in hostile


def test_every_term_leads_to_a_lesson(client: TestClient) -> None:
    page = client.get("/glossary").text
    assert 'id="ttft"' in page
    assert page.count("<dt>") > 40


def test_the_table_of_contents_alone_renders_no_lesson(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexes: dict[Language, LessonIndex] = {}
    monkeypatch.setattr(lesson_routes, "_INDEXES", indexes)
    assert client.get("/learn").status_code == 200
    assert client.get("/learn", params={"q": "  "}).status_code == 200
    assert not indexes
    assert client.get("/learn", params={"q": "token"}).status_code == 200
    assert len(indexes) == 1
