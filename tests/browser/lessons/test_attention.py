"""Lesson 4 on the real model: its tasks by keyboard alone, what the pictures say, its scripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import DESKTOP, PHONE, OpenPage
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp
from webapp.lessons.lesson import SCRIPTS

pytestmark = [pytest.mark.browser, pytest.mark.serial]

PATH = "/learn/attention"
TEXT = "The capital of France is Paris. The capital of Italy is"
MASKED_KEYS = 11


def opened(server: LiveApp, open_page: OpenPage, **options: object) -> Page:
    page = open_page(server, f"{PATH}?lang=en", **options)
    page.locator("#steps tbody tr").first.wait_for()
    return page


def walk(page: Page, habit: str) -> None:
    """From the head that has the grid's tab stop to one of that habit, with arrows and Enter."""
    place = "node => [Number(node.dataset.row), Number(node.dataset.column)]"
    here = page.locator('#heads .head-cell[tabindex="0"]')
    here.focus()
    row, column = here.evaluate(place)
    to_row, to_column = page.locator(f'#heads [data-habit="{habit}"]').first.evaluate(place)
    for key, steps in (("Down", to_row - row), ("Right", to_column - column)):
        other = {"Down": "Up", "Right": "Left"}[key]
        for _ in range(abs(steps)):
            page.keyboard.press(f"Arrow{key if steps > 0 else other}")
    page.keyboard.press("Enter")


def test_all_tasks_by_keyboard(real_server: LiveApp, open_page: OpenPage) -> None:
    page = opened(real_server, open_page)
    walk(page, "previous")
    expect(page.locator("#heads [data-readout]")).to_contain_text("on the token before")
    assert page.locator("#task-two-habits").get_attribute("data-done") is None
    walk(page, "first")
    expect(page.locator("#task-two-habits")).to_have_attribute("data-done", "yes")

    page.get_by_role("button", name="Next step").focus()
    for _ in range(4):
        page.keyboard.press("Space")
    expect(page.locator("#steps [data-words]")).to_contain_text("this head hands on")
    expect(page.locator("#task-follow")).to_have_attribute("data-done", "yes")

    for press in (False, True):
        page.locator('#without input[name="part"]:checked').focus()
        if press:
            page.keyboard.press("ArrowDown")
        page.locator("#without [data-run]").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#without [data-status]")).to_contain_text("likeliest", timeout=60_000)
    expect(page.locator("#task-take-out")).to_have_attribute("data-done", "yes")


def test_the_guess_is_measured_and_the_scale_changes_the_answer(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = opened(real_server, open_page)
    expect(page.locator("#measure")).to_be_disabled()
    page.get_by_label("They become more even").check()
    page.click("#measure")
    expect(page.locator("#truth")).to_contain_text("As you guessed.", timeout=30_000)
    page.locator("#without [data-run]").click()
    sides = page.locator("#without .comparison-side")
    expect(sides.nth(0).locator("li").first).to_contain_text("·Rome", timeout=60_000)
    expect(sides.nth(1).locator("li").first).to_contain_text("·Paris")


def test_the_browser_computes_the_same_weights(real_server: LiveApp, open_page: OpenPage) -> None:
    page = opened(real_server, open_page)
    page.locator('#steps input[value="4"]').check(force=True)
    words = page.locator("#steps [data-words]").inner_text()
    found = re.search(r"off by (\S+) at most", words)
    assert found
    assert float(found[1]) < 5e-3
    rows = page.locator("#steps tbody tr")
    assert rows.count() == page.locator("#query .look").count() == len(TEXT.split()) + 1
    page.locator("#query .look").first.click()
    expect(page.locator('#steps tr[data-seen="false"]')).to_have_count(MASKED_KEYS)
    expect(page.locator("#query [data-state=hidden]")).to_have_count(MASKED_KEYS)


def test_one_head_large_by_keyboard(real_server: LiveApp, open_page: OpenPage) -> None:
    page = opened(real_server, open_page)
    page.locator("#head [data-board]").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    readout = page.locator("#head [data-readout]")
    expect(readout).to_contain_text("·Italy (10) gives")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("hidden by the mask")
    page.keyboard.press("Enter")
    expect(page.locator("#query-title")).to_contain_text("What ·Italy (position 10) looks at")


def test_a_long_text_any_head(real_server: LiveApp, open_page: OpenPage) -> None:
    page = opened(real_server, open_page)
    page.fill("#prompt", "the quick brown fox jumps over the lazy dog and " * 51)
    page.click("#look")
    expect(page.locator("#look-status")).to_contain_text("Tokens: 51", timeout=60_000)
    expect(page.locator("#head [data-facts]")).to_contain_text("× 51", timeout=60_000)
    page.locator("#heads .head-cell").nth(100).click()
    expect(page.locator("#head-title")).to_contain_text("Layer 10, head 3")


def test_without_an_engine_it_waits(
    fake_engine: FakeEngine, fake_server: LiveApp, open_page: OpenPage
) -> None:
    fake_engine.state = "restarting"
    page = open_page(fake_server, f"{PATH}?lang=en")
    expect(page.locator("#look-status")).to_contain_text("The picture comes by itself.")
    for button in ("#look", "#measure", "#without [data-run]"):
        expect(page.locator(button)).to_be_disabled()


@pytest.mark.parametrize("name", ["attention.sh", "attention.py"])
def test_its_scripts_run(real_server: LiveApp, name: str) -> None:
    command = ["bash"] if name.endswith(".sh") else [sys.executable]
    done = subprocess.run(
        [*command, str(SCRIPTS / name)],
        env={**os.environ, "SERVICE": real_server.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "Paris" in done.stdout


@pytest.mark.parametrize(
    ("theme", "language", "size"),
    [
        ("light", "en", DESKTOP),
        ("dark", "zh-Hans", PHONE),
    ],
)
def test_its_looks(
    tiny_server: LiveApp, open_page: OpenPage, theme: str, language: str, size: dict[str, int]
) -> None:
    page = open_page(
        tiny_server, f"{PATH}?lang={language}", color_scheme=theme, viewport=size, bypass_csp=True
    )
    page.locator("#steps tbody tr").first.wait_for()
    page.locator('#steps input[value="5"]').check(force=True)
    found = Axe().run(page).response["violations"]
    assert [f"{v['id']}: {[n['target'] for n in v['nodes']]}" for v in found] == []
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0
