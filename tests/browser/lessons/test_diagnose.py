"""Lesson 12 in Chromium: every task by keyboard, on the real engine."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.lessons.scripts import run_script
from tests.webapp.live_server import LiveApp
from webapp.pages.cases import CASES, solved

pytestmark = [pytest.mark.browser, pytest.mark.serial]


def is_done(page: Page, task: str) -> None:
    expect(page.locator(f'[data-task="{task}"]')).to_have_attribute(
        "data-done", "yes", timeout=30_000
    )


def press(page: Page, selector: str, key: str = "Enter") -> None:
    page.focus(selector)
    page.keyboard.press(key)


def milliseconds(page: Page, station: str) -> float:
    text = page.locator(f'[data-station="{station}"] [data-time]').inner_text()
    value, unit = text.split("\u00a0")
    return float(value.replace(",", "")) * {"ms": 1, "s": 1000}[unit]


def test_the_journey(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/diagnose")
    page.focus('input[name="guess"]')
    page.keyboard.press("Space")
    page.fill("#answer-tokens", "6")
    press(page, "#guess-run")
    is_done(page, "journey")
    expect(page.locator("#truth")).to_contain_text("Measured")
    expect(page.locator("#answer-text")).not_to_be_empty()
    way = ["press", "out", "tokenize", "wait", "embed", "prefill", "detokenize", "back", "paint"]
    times = {name: milliseconds(page, name) for name in way}
    assert all(value >= 0 for value in times.values())
    assert times["prefill"] > times["embed"] > 0
    total = page.locator("#journey-words").inner_text()
    assert "in the engine" in total
    assert page.locator('[data-station="decode"] rect').count() == 5

    # The run just measured, diagnosed: this server was not calibrated, so it is typed in.
    press(page, "#take-run")
    expect(page.locator("#take-status")).to_contain_text("has not been measured")
    page.fill("#d-ttft", "2500")
    page.fill("#d-itl", "7")
    press(page, "#diagnose-form button")
    is_done(page, "own")


def test_characters_of_several_tokens(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/diagnose?lang=zh-Hans")
    page.fill("#spell-text", "你🚀")
    press(page, "#spell-form [type=submit]")
    expect(page.locator("#spell-next")).to_be_focused()
    count = page.locator(".spell-token").count()
    assert count > 2, "two characters, more tokens"
    screens: list[str] = []
    for _ in range(count):
        page.keyboard.press("Space")
        screens.append(page.locator("#screen").inner_text())
    assert screens[0] == "", "the first token ends inside a character"
    assert screens[-1] == "你🚀"
    is_done(page, "spell")


def test_cases(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, "/learn/diagnose")
    for case in CASES[:3]:
        box = page.locator(f'[data-case="{case.name}"]')
        if box.get_attribute("open") is None:
            box.locator("summary").focus()
            page.keyboard.press("Enter")
        box.locator(f'input[value="{solved(case.name).verdict}"]').focus()
        page.keyboard.press("Space")
        box.locator(f'input[value="{case.cause}"]').focus()
        page.keyboard.press("Space")
        box.locator("button").focus()
        page.keyboard.press("Enter")
        expect(box.locator('.case-line[data-right="yes"]')).to_have_count(2)
        expect(box).to_have_attribute("data-solved", "yes")
    is_done(page, "cases")


def test_its_scripts(real_server: LiveApp) -> None:
    assert run_script("diagnose.py", real_server.url).startswith("slow to start\n")
    assert '"verdict":"slow to start"' in run_script("diagnose.sh", real_server.url)
