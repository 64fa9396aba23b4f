"""What holds for every lesson: it is whole, points to what exists, and has sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from webapp.claims.catalogue import CLAIMS, get_claim
from webapp.i18n import Language, texts
from webapp.lessons.catalogue import LESSONS
from webapp.lessons.lesson import Basis, Lesson, source_code
from webapp.pages.lesson_view import lesson_view
from webapp.rendering import ROOT

JS = ROOT / "static" / "js" / "lessons"
TEMPLATES = ROOT / "templates" / "lessons"
EVERY = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.slug)
NUMBER = re.compile(r"(?<![\w.,/×-])\d[\d.,]*(?![\w-])")


def script_of(lesson: Lesson) -> str:
    return "".join((JS / f"{name}.js").read_text("utf-8") for name in lesson.scripts)


def prose_of(lesson: Lesson) -> str:
    """The words of a template: no tags, no expressions, no code."""
    text = (TEMPLATES / f"{lesson.slug}.html").read_text("utf-8")
    text = re.sub(r"\{#.*?#\}|<(code|pre|select|svg|table)\b.*?</\1>", " ", text, flags=re.S)
    return re.sub(r"\{\{.*?\}\}|\{%.*?%\}|<[^>]*>", " ", text, flags=re.S)


def test_there_are_twelve_in_order() -> None:
    assert [lesson.number for lesson in LESSONS] == list(range(1, 13))
    assert len({lesson.slug for lesson in LESSONS}) == len(LESSONS)


@EVERY
@pytest.mark.parametrize("language", Language)
def test_its_page(client: TestClient, lesson: Lesson, language: Language) -> None:
    answer = client.get(f"/learn/{lesson.slug}?lang={language}")
    assert answer.status_code == 200
    said = texts(language)
    for text in (lesson.title, lesson.question, lesson.guess.question, *lesson.guess.choices):
        assert said.gettext(text) in answer.text.replace("&#39;", "'").replace("&#34;", '"')
    assert answer.text.count("data-task=") == len(lesson.tasks)


@EVERY
def test_it_is_whole(lesson: Lesson) -> None:
    assert 2 <= len(lesson.tasks) <= 4
    assert len(lesson.guess.choices) >= 2
    assert lesson.claims
    assert lesson.code
    assert lesson.teaching.pitfalls
    assert lesson.teaching.questions
    assert "SERVICE" in lesson.curl
    assert "SERVICE" in lesson.python
    ast.parse(lesson.python)


@EVERY
def test_its_scripts_are_loaded_as_they_import_each_other(
    client: TestClient, lesson: Lesson
) -> None:
    """A module at two addresses is two modules, each with a state of its own."""
    page = client.get(f"/learn/{lesson.slug}").text
    for name in ("lesson", *lesson.scripts):
        assert f'src="/static/js/lessons/{name}.js"' in page


@EVERY
def test_its_code_is_there(client: TestClient, lesson: Lesson) -> None:
    for code in lesson.code:
        found = source_code(code.path, code.name)
        assert code.name.rpartition(".")[2] in found.text
        assert client.get(code.address).status_code == 200


@EVERY
def test_its_claims_name_it(lesson: Lesson) -> None:
    assert {claim.id for claim in CLAIMS if claim.lesson == lesson.slug} <= set(lesson.claims)
    assert all(get_claim(claim) for claim in lesson.claims)


@EVERY
def test_its_tasks_can_be_done_and_its_texts_are_there(lesson: Lesson) -> None:
    script = script_of(lesson)
    assert set(re.findall(r'\bdid\(\s*"([^"]+)"', script)) == {task.name for task in lesson.tasks}
    view = lesson_view(lesson, texts(Language.CHINESE))
    assert set(re.findall(r'\bt\(\s*"([^"]+)"', script)) <= view.texts.keys()
    assert not {key for key in lesson.texts if f'"{key}"' not in script and not _built(key, script)}


def _built(key: str, script: str) -> bool:
    """Whether a script puts the key together: t(`phase.${name}`)."""
    return f"`{key.rpartition('.')[0]}." in script


@EVERY
def test_its_figures_have_sources(lesson: Lesson) -> None:
    for name, figure in lesson.figures().items():
        assert figure.source, name
        assert figure.text, name
    assert NUMBER.findall(prose_of(lesson)) == []
    for task in lesson.tasks:
        assert NUMBER.findall(task.found) == []


@pytest.mark.parametrize("basis", Basis)
def test_what_kind_of_number_it_is_has_a_chinese_word(basis: Basis) -> None:
    assert re.search(r"[\u4e00-\u9fff]", texts(Language.CHINESE).gettext(basis.value))


def test_only_code_that_lessons_point_to_is_shown(client: TestClient) -> None:
    assert client.get("/source/webapp/settings.py?name=Settings").status_code == 404
    assert client.get("/source/..%2F..%2Fetc%2Fpasswd?name=root").status_code == 404


def test_common_scripts_use_the_texts_that_there_are() -> None:
    from webapp.pages.lesson_texts import LESSON_TEXTS

    common = "".join(
        (JS / f"{name}.js").read_text("utf-8") for name in ("lesson", "progress", "learn", "engine")
    )
    used = set(re.findall(r'\bt\(\s*"([^"]+)"', common))
    assert used - {"error.connection"} <= LESSON_TEXTS.keys()


def test_no_template_is_left_over() -> None:
    known = {"lesson", "macros", *(lesson.slug for lesson in LESSONS)}
    assert {path.stem for path in Path(TEMPLATES).glob("*.html")} == known
