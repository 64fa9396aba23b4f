"""The loop by keyboard on the real model: its tasks, its guess, its ways, its scripts."""

from __future__ import annotations

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, OpenPage
from tests.browser.lessons.scripts import run_script
from tests.webapp.live_server import LiveApp

pytestmark = [pytest.mark.browser, pytest.mark.serial]


def begin(page: Page, prompt: str, kind: str = "text") -> None:
    page.get_by_label("Give it to the model").select_option(kind)
    page.get_by_label("Your beginning").fill(prompt)
    page.get_by_role("button", name="Begin", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("listbox", name="What may come next")).to_be_focused()


def press(page: Page, *keys: str) -> None:
    """Keys to the list of candidates, each once the model has answered the one before."""
    for key in keys:
        page.keyboard.press(key)
        page.locator("#candidates[aria-busy=false] [role=option], [data-does=end][data-now]").nth(
            0
        ).wait_for()


def done(page: Page, task: str) -> None:
    expect(page.locator(f"[data-task={task}]")).to_have_attribute(
        "data-done", "yes", timeout=20_000
    )


def pieces(page: Page) -> list[str]:
    return page.locator("[data-text] .tok").all_inner_texts()


def test_a_press_is_a_token_and_other_ways_can_be_walked(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, "/learn/loop")
    begin(page, "Once upon a time, there was a")
    before = pieces(page)
    likeliest = page.locator("#candidates .piece").first.inner_text()
    press(page, " ", "Enter", "ArrowRight", " ", " ")
    after = pieces(page)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 5
    assert after[len(before)].strip() == likeliest.strip("·")
    expect(page.locator("#announce")).to_contain_text("Done:")
    done(page, "step")

    press(page, *["ArrowLeft"] * 5)
    assert pieces(page) == before
    press(page, "ArrowDown", *" " * 5)
    done(page, "other")
    done(page, "ways")
    ways = page.locator(".way")
    expect(ways).to_have_count(2)
    expect(ways.nth(1)).to_have_attribute("aria-current", "true")
    ways.nth(0).focus()
    page.keyboard.press("Enter")
    assert pieces(page) == after
    page.get_by_text("The tokens taken, as a table").click()
    assert page.locator("[data-rows] tr").count() == 5


def test_the_probabilities_are_those_of_the_interface(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, "/learn/loop")
    begin(page, "The capital of France is")
    asked = {"text": "The capital of France is", "position": 4, "k": 10}
    told = httpx2.post(f"{real_server.url}/api/v1/probes/next-token", json=asked, timeout=30).json()
    shown = [
        piece.replace("·", " ") for piece in page.locator("#candidates .piece").all_inner_texts()
    ]
    assert shown == [token["piece"].replace("\n", "↵") for token in told["top"]]
    assert page.locator("#candidates .p").first.inner_text() == "77%"
    expect(page.locator("[data-others] .piece")).to_have_text("49,142 other tokens")


def test_a_chat_ends_with_a_token(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/loop", viewport=PHONE)
    begin(page, "What is the capital of France?", "chat")
    page.get_by_role("button", name="Eight times").click()
    done(page, "end")
    expect(page.locator("[data-line]")).to_contain_text("is a control token")
    assert page.get_by_role("button", name="Take it").is_disabled()
    page.get_by_role("button", name="Back").click()
    expect(page.get_by_role("button", name="Take it")).to_be_enabled()


def test_the_guess_is_measured(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/loop")
    measure = page.get_by_role("button", name="Run it and count")
    expect(measure).to_be_disabled()
    page.get_by_label("Once for each word").check()
    measure.click()
    truth = page.locator("#truth")
    expect(truth).to_contain_text("the model ran 12 times for 12 tokens")
    expect(truth).to_contain_text("Not as you guessed.")
    expect(page.locator("label[data-truth=right]")).to_contain_text("Once for each token")


@pytest.mark.parametrize("script", ["loop.sh", "loop.py"])
def test_its_scripts_run(real_server: LiveApp, script: str) -> None:
    assert " small" in run_script(script, real_server.url)


def test_a_text_that_is_too_long_is_said(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/loop")
    page.get_by_label("Your beginning").fill("one two three four " * 250)
    page.get_by_role("button", name="Begin", exact=True).click()
    expect(page.locator("[data-line]")).to_contain_text("Shorten your text.")
    expect(page.get_by_role("button", name="Take it")).to_be_disabled()
    begin(page, "One two three")
    expect(page.get_by_role("button", name="Take it")).to_be_enabled()


def test_a_character_over_several_tokens_stands_at_the_last(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, "/learn/loop")
    begin(page, "给我讲个 🦊 的故事")
    shown = "".join(pieces(page))
    assert shown.replace("▫", "") == "给我讲个 🦊 的故事"
    assert shown.count("▫") > 5
