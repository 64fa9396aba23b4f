"""Templates and scripts keep what people typed as text: nothing inline, nothing unescaped."""

from __future__ import annotations

import re

import pytest

from tests.architecture.tree import ROOT, project_files

TEMPLATE_RULES = {
    "unescaped output": re.compile(r"\|\s*safe\b|\bMarkup\(|autoescape\s+false", re.I),
    "inline script": re.compile(r"<script(?![^>]*\bsrc=)[^>]*>", re.I),
    "inline handler": re.compile(r"<[a-z][^>]*\son[a-z]+\s*=", re.I),
    "inline style": re.compile(r"<style\b|<[a-z][^>]*\sstyle\s*=", re.I),
    "javascript: link": re.compile(r"javascript:", re.I),
    "foreign resource": re.compile(
        r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=.https?:", re.I
    ),
}
SCRIPT_RULES = {
    "HTML from a string": re.compile(
        r"\.(?:inner|outer)HTML\s*\+?=|insertAdjacentHTML|document\.write|createContextualFragment"
        r"|DOMParser|setHTMLUnsafe"
    ),
    "code from a string": re.compile(r"\beval\s*\(|new\s+Function\b|setTimeout\s*\(\s*['\"`]"),
    "style from a string": re.compile(r"setAttribute\(\s*['\"]style['\"]|\.cssText\b"),
}


def violations(text: str, rules: dict[str, re.Pattern[str]]) -> list[str]:
    return [name for name, pattern in rules.items() if pattern.search(text)]


def test_templates_hold_no_inline_code_and_no_unescaped_output():
    templates = list(project_files(".html", ".svg", ".j2"))
    assert templates
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in templates
        if (wrong := violations(path.read_text(encoding="utf-8"), TEMPLATE_RULES))
    }
    assert found == {}


def test_scripts_build_nothing_from_strings():
    scripts = list(project_files(".js"))
    assert scripts
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in scripts
        if (wrong := violations(path.read_text(encoding="utf-8"), SCRIPT_RULES))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{{ name|safe }}", "unescaped output"),
        ("<script>alert(1)</script>", "inline script"),
        ('<script type="module">x</script>', "inline script"),
        ('<button class="a" onclick="go()">', "inline handler"),
        ('<p style="color: red">', "inline style"),
        ('<a href="javascript:go()">', "javascript: link"),
    ],
)
def test_the_template_rules_find(text: str, rule: str):
    assert violations(text, TEMPLATE_RULES) == [rule]


@pytest.mark.parametrize(
    "text",
    ['<script src="/static/a.js" type="module"></script>', "<p>on = off</p>", "{{ safe }}"],
)
def test_the_template_rules_leave_alone(text: str):
    assert violations(text, TEMPLATE_RULES) == []
