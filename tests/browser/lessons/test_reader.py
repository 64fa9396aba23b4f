"""What a reader has done and written, over several pages and lessons of one browser."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, OpenPage
from tests.webapp.live_server import LiveApp

pytestmark = [pytest.mark.browser, pytest.mark.serial]

EMPTY = "Write something first."


def beside(page: Page, path: str) -> Page:
    """Another page of the same browser."""
    other = page.context.new_page()
    other.goto(path)
    return other


def look_at_rows(page: Page) -> None:
    """A task of the lesson on vectors."""
    caption = page.locator("#rows-caption")
    expect(caption).to_contain_text("numbers")
    for place in (1, 2):
        before = caption.inner_text()
        page.locator("#rows-tokens button").nth(place).click()
        expect(caption).not_to_have_text(before)
    expect(page.locator("#task-rows")).to_have_attribute("data-done", "yes")


def test_pages_beside_each_other_keep_what_each_has_noted(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, "/learn/vectors")
    guess = beside(page, "/learn/tokens")
    overview = beside(page, "/learn")
    of_vectors = overview.locator("[data-lesson=vectors]")
    expect(of_vectors).to_contain_text("0 of 4 tasks")
    look_at_rows(page)
    expect(of_vectors).to_contain_text("1 of 4 tasks")
    guess.get_by_role("radio", name="un · happiness").check()
    with overview.expect_download() as download:
        overview.locator("#export").click()
    kept = json.loads(download.value.path().read_text())
    assert list(kept["tasks"]) == ["vectors.rows"]
    assert kept["guesses"] == {"tokens": 1}

    overview.locator("#reset").click()
    expect(of_vectors).to_contain_text("0 of 4 tasks")
    expect(page.locator("#task-rows .found")).to_be_hidden()
    expect(page.locator("#task-rows")).not_to_have_attribute("data-done", "yes")


def test_an_empty_prompt_is_said_and_not_taken_along(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, "/learn/vectors")
    prompt = page.get_by_role("textbox", name="Your prompt")
    expect(page.locator("#rows-tokens button")).to_have_count(12)
    prompt.fill("Two words")
    prompt.blur()
    expect(page.locator("#rows-tokens button")).to_have_count(2)
    prompt.fill("  ")
    expect(page.locator("#rows-problem")).to_have_text(EMPTY)
    page.locator("#order-run").click()
    expect(page.locator("#order-problem")).to_have_text(EMPTY)
    for path in ("/learn/attention", "/learn/layers"):
        page.goto(path)
        prompt = page.get_by_role("textbox", name="Your text")
        expect(prompt).to_have_value("Two words")
        expect(page.locator("#look-status")).to_contain_text("Tokens: 2", timeout=30_000)
        prompt.fill(" ")
        page.locator("#look").click()
        expect(page.locator("#look-status")).to_have_text(EMPTY)
    page.goto("/learn/tokens")
    page.get_by_label("Text to learn from").fill("")
    page.locator("#training-go").click()
    expect(page.locator("#training-problem")).to_have_text(EMPTY)


def test_names_on_the_plane_stay_inside_on_a_phone(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, "/learn/vectors", viewport=PHONE)
    for picture in ("#map-picture", "#dial-curve"):
        names = page.locator(f"{picture} text")
        expect(names.nth(4)).to_be_visible(timeout=30_000)
        outside = page.locator(picture).evaluate(
            """svg => {
              const frame = svg.getBoundingClientRect();
              return [...svg.querySelectorAll("text")].filter((text) => {
                const { left, right } = text.getBoundingClientRect();
                return left < frame.left || right > frame.right;
              }).map((text) => text.textContent);
            }"""
        )
        assert outside == []
