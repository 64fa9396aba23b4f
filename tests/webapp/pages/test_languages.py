"""Both languages: chosen as a reader would expect, complete, and with the same blanks to fill."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po
from fastapi.testclient import TestClient

from engine.refusals import REFUSALS
from webapp.i18n import LOCALE_DIR, Language, catalogue_files, choose_language, texts
from webapp.pages.cheapest_view import search_messages
from webapp.pages.diagnose_view import diagnosis_messages
from webapp.pages.refusal_words import refusal_messages
from webapp.pages.script_texts import SCRIPT_TEXTS, script_texts
from webapp.pages.sweep_view import sweep_messages
from webapp.pages.validation_view import report_messages
from webapp.rendering import ROOT

MessageId = str | tuple[str, ...]
BLANK = re.compile(r"\{\w+\}|%\(\w+\)s|</?b[^>]*>")
CHOSEN_AT_RUN_TIME = (
    "done.",
    "error.",
    "notice.",
    "prefill.",
    "decode.",
    "recompute.",
    "refusal.",
    "predicted.",
    "strip.step.",
)


def source_messages() -> set[MessageId]:
    """Every text of the templates, the pages' view models and the scripts, in English."""
    found: set[MessageId] = set()
    for folder, method in (
        ("templates", ("**.html", "jinja2.ext:babel_extract")),
        ("webapp/pages", ("**.py", "python")),
        ("webapp/lessons", ("**.py", "python")),
        ("webapp/claims", ("**.py", "python")),
    ):
        # As the templates are rendered: a lone % is %% in the message.
        options = {"**.html": {"newstyle_gettext": "true"}}
        for _, _, message, _, _ in extract_from_dir(str(ROOT / folder), [method], options):
            found.add(message if isinstance(message, str) else tuple(message))
    found |= report_messages()
    found |= refusal_messages()
    found |= diagnosis_messages() | sweep_messages() | search_messages()
    for text in SCRIPT_TEXTS.values():
        found.add(text if isinstance(text, str) else (text.one, text.other))
    return found


def translations() -> dict[MessageId, tuple[str, ...]]:
    found: dict[MessageId, tuple[str, ...]] = {}
    for path in catalogue_files(Language.CHINESE):
        with path.open("rb") as file:
            catalog = read_po(file, locale="zh_Hans", abort_invalid=True)
        for message in catalog:
            if not message.id:
                continue
            assert not message.fuzzy, message.id
            if isinstance(message.id, str):
                source, forms = message.id, (str(message.string),)
            else:
                source = tuple(str(part) for part in message.id)
                forms = tuple(map(str, message.string or ()))
            assert found.setdefault(source, forms) == forms, f"two translations of {source}"
    return found


def test_chinese_is_complete_and_has_nothing_that_is_gone() -> None:
    assert translations().keys() == source_messages()
    assert all(all(forms) for forms in translations().values())


def test_translations_keep_every_blank() -> None:
    for source, forms in translations().items():
        wanted = set(BLANK.findall(source if isinstance(source, str) else source[-1]))
        for form in forms:
            found = set(BLANK.findall(form))
            assert found <= wanted, source
            # "one step" counts in words where Chinese counts in figures, never the other way.
            assert wanted == found, source


def test_chinese_is_chinese() -> None:
    """What stays as it is in English is a name or a formula, not a forgotten sentence."""
    same = {source for source, forms in translations().items() if source == forms[0]}
    assert all(len(str(text)) < 20 for text in same), same


def test_scripts_use_the_texts_that_there_are() -> None:
    script = "".join(path.read_text("utf-8") for path in (ROOT / "static" / "js").glob("*.js"))
    used = set(re.findall(r'\bt\(\s*"([^"]+)"', script))
    assert used <= SCRIPT_TEXTS.keys()
    quoted = set(re.findall(r'"([a-zA-Z][\w.]*)"', script))
    unused = {
        key for key in SCRIPT_TEXTS if key not in quoted and not key.startswith(CHOSEN_AT_RUN_TIME)
    }
    assert not unused


def test_every_refusal_of_the_engine_has_a_text_in_both_languages() -> None:
    for language in Language:
        told = script_texts(texts(language))
        for reason, sentence in REFUSALS.items():
            text = told[f"refusal.{reason}"]
            assert isinstance(text, str)
            assert (text == sentence) == (language is Language.ENGLISH), reason
            assert set(BLANK.findall(text)) == set(BLANK.findall(sentence)), reason


def test_plural_forms() -> None:
    english = script_texts(texts(Language.ENGLISH))["done.stop"]
    chinese = script_texts(texts(Language.CHINESE))["done.stop"]
    assert english[0] != english[1]
    assert chinese[0] == chinese[1]


@pytest.mark.parametrize(
    ("asked", "remembered", "accept", "language"),
    [
        (None, None, None, "en"),
        ("zh", None, "en", "zh-Hans"),
        ("zh-Hans", "en", "en", "zh-Hans"),
        (None, "zh-Hans", "en", "zh-Hans"),
        (None, None, "zh-CN,zh;q=0.9,en;q=0.8", "zh-Hans"),
        (None, None, "fr-FR,fr;q=0.9,zh;q=0.3,en;q=0.5", "en"),
        (None, None, "de, zh;q=0.1", "zh-Hans"),
        (None, None, "zh;q=0, en", "en"),
        (None, None, "zh;q=nonsense, ;;,,=", "en"),
        ("<script>", "\x00", "*", "en"),
    ],
)
def test_choice(asked: str | None, remembered: str | None, accept: str | None, language: str):
    assert choose_language(asked, remembered, accept).value == language


def test_page_speaks_and_remembers(client: TestClient) -> None:
    english = client.get("/", headers={"accept-language": "en-GB"})
    assert '<html lang="en" ' in english.text
    assert english.headers["content-language"] == "en"
    assert {"Accept-Language", "Cookie"} <= set(english.headers["vary"].split(", "))
    assert "set-cookie" not in english.headers

    chinese = client.get("/?lang=zh-Hans")
    assert '<html lang="zh-Hans" ' in chinese.text
    assert "预填充" in chinese.text
    cookie = chinese.headers["set-cookie"]
    assert "lang=zh-Hans" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    again = client.get("/", headers={"accept-language": "en"})
    assert '<html lang="zh-Hans" ' in again.text, "the cookie is stronger than the browser"


def test_no_english_sentence_is_left_on_the_chinese_page(client: TestClient) -> None:
    page = client.get("/?lang=zh-Hans").text
    for source in source_messages():
        text = source if isinstance(source, str) else source[-1]
        if len(text) > 20:
            assert text not in page


def test_catalogue_stands_beside_its_language() -> None:
    assert {path.name for path in Path(LOCALE_DIR).iterdir()} == {
        language.locale for language in Language if language is not Language.ENGLISH
    }
