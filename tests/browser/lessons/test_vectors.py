"""Lesson 3 on the real engine, by keyboard: rows, neighbours, the dial, the model without turns."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import OpenPage
from tests.webapp.live_server import LiveApp

pytestmark = [pytest.mark.browser, pytest.mark.serial]


def task(page: Page, name: str) -> None:
    """The task is done, and a screen reader can tell."""
    expect(page.locator(f"#task-{name}")).to_have_attribute("data-done", "yes")
    expect(page.locator(f"#task-{name} .state")).to_have_text("complete")


def test_every_task_by_keyboard(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/vectors")
    tokens = page.get_by_role("listbox", name="Tokens of your prompt")
    tokens.get_by_role("option").first.focus()
    caption = page.locator("#rows-caption")
    expect(caption).to_contain_text("of 49,152 rows of 576 numbers")
    first = caption.inner_text()
    page.keyboard.press("ArrowRight")
    expect(caption).not_to_have_text(first)
    page.keyboard.press("ArrowRight")
    task(page, "rows")
    page.get_by_label("Which number of the row").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#rows-value")).to_have_text(re.compile(r"number 1: -?0\.\d{4}"))

    page.get_by_label("Words, added").fill("king")
    page.keyboard.press("Enter")
    glove = page.locator("#words-glove")
    expect(glove).to_contain_text("queen")
    expect(page.locator("#words-model tr")).to_have_count(8)
    page.get_by_label("Words, added").fill("king, woman")
    page.get_by_label("less these words").fill("man")
    page.keyboard.press("Enter")
    expect(glove.locator("tr").first).to_contain_text("queen")
    task(page, "neighbours")

    expect(page.locator("#dial-score")).to_contain_text("Score of all pairs")
    told = re.search(
        r"computed (-?[\d.,]+) \(measured\), the dial (-?[\d.,]+)\.",
        page.locator("#dial-engine").inner_text(),
    )
    assert told
    assert float(told[1]) == pytest.approx(float(told[2]), rel=0.02, abs=0.02)
    page.get_by_label("Move both by").focus()
    page.keyboard.press("PageUp")
    expect(page.locator("#dial-score")).to_contain_text("the score is the same to")
    task(page, "distance")

    page.get_by_role("button", name="Run with and without").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#order-problem")).to_be_empty()
    expect(page.locator("#order-found")).to_contain_text("nats a position", timeout=30_000)
    task(page, "without")
    expect(page.locator("#announce")).to_contain_text("All tasks of this lesson are done.")


def test_the_guess_is_measured_and_kept(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/vectors")
    button = page.locator("#guess-measure")
    expect(button).to_be_disabled()
    expect(page.locator("#rows-tokens button")).to_have_count(12)
    page.get_by_role("radio", name="Nowhere: the model sees a bag of words.").check()
    button.click()
    expect(page.locator("#truth")).to_contain_text("Not as you guessed.")
    expect(page.locator("#truth")).to_contain_text("positions 4 and 7. Measured just now")
    page.reload()
    expect(page.get_by_role("radio", name="Nowhere: the model sees a bag")).to_be_checked()


def test_words_that_are_not_known(real_server: LiveApp, browser: Browser) -> None:
    """Not under the watch for faults: a browser reports every refusal in its console by itself."""
    page = browser.new_page(base_url=real_server.url)
    page.goto("/learn/vectors?lang=zh")
    page.locator("#words-plus").fill("python, unhappinesses")
    page.locator("#words-form button").click()
    expect(page.locator("#words-problem")).to_contain_text("第 2 个词")
    page.close()
