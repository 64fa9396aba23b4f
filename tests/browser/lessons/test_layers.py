"""Lesson 5 on the real model: its tasks by keyboard alone, what the pictures say, its scripts."""

from __future__ import annotations

import os
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

PATH = "/learn/layers"
TOKENS, LAYERS = 12, 30


def opened(server: LiveApp, open_page: OpenPage, **options: object) -> Page:
    page = open_page(server, f"{PATH}?lang=en", **options)
    page.locator("#ffn tbody tr").first.wait_for()
    return page


def walked(page: Page, columns: int) -> None:
    expect(page.locator("#lens .lens-cell[data-settled=first]")).to_have_count(
        columns, timeout=60_000
    )


def test_all_tasks_by_keyboard(real_server: LiveApp, open_page: OpenPage) -> None:
    page = opened(real_server, open_page)
    page.get_by_label("In the last third").focus()
    page.keyboard.press("Space")
    page.locator("#measure").focus()
    page.keyboard.press("Enter")
    walked(page, TOKENS)
    expect(page.locator("#truth")).to_contain_text("As you guessed.")

    page.locator('#lens .lens-cell[tabindex="0"]').focus()
    expect(page.locator("#lens [data-readout]")).to_contain_text("·is would be followed by ·Rome")
    while page.evaluate("document.activeElement.dataset.settled") != "first":
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator("#task-decided")).to_have_attribute("data-done", "yes")

    for _ in range(2):
        page.locator("#skip-layer").focus()
        page.keyboard.press("ArrowLeft")
        page.locator("#skip [data-run]").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#skip [data-status]")).to_contain_text("likeliest", timeout=60_000)
    expect(page.locator("#task-skip")).to_have_attribute("data-done", "yes")

    page.locator("#ffn-layer").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#task-units")).to_have_attribute("data-done", "yes")

    page.locator("#parts-model").focus()
    page.keyboard.type("mixtral-8x7b")
    expect(page.locator("#parts-picture")).to_contain_text("experts that one token does not use")
    expect(page.locator("#task-compare")).to_have_attribute("data-done", "yes")


def test_the_first_layer_carries_more_than_one_in_the_middle(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = opened(real_server, open_page)
    expect(page.locator("#skip [data-which]")).to_have_text(f"layer {LAYERS // 2}")
    page.locator("#skip-layer").focus()
    page.keyboard.press("Home")
    page.locator("#skip [data-run]").click()
    expect(page.locator("#skip [data-status]")).to_contain_text("is now", timeout=60_000)
    sides = page.locator("#skip .comparison-side")
    expect(sides.nth(0).locator("li").first).to_contain_text("·Rome")
    expect(sides.nth(1).locator("li").first).not_to_contain_text("·Rome")


def test_the_stream_has_a_table_with_the_same_numbers(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = opened(real_server, open_page)
    expect(page.locator("#stream [data-picture] rect")).to_have_count(2 * LAYERS)
    expect(page.locator("#stream [data-rows] tr")).to_have_count(LAYERS + 1)
    before = page.locator("#stream [data-facts]").inner_text()
    page.locator("#stream-token").select_option("0")
    expect(page.locator("#ffn-token")).to_have_value("0")
    expect(page.locator("#stream [data-facts]")).not_to_have_text(before)


def test_where_it_all_is(tiny_server: LiveApp, open_page: OpenPage) -> None:
    page = opened(tiny_server, open_page)
    page.locator("#parts-model").select_option("llama-3.1-70b")
    expect(page.locator("#parts-picture")).to_contain_text("80 layers")
    page.locator("#parts-power").focus()
    page.keyboard.press("End")
    expect(page.locator("#parts output")).to_have_text("131,072 tokens")
    page.locator("#parts-picture summary").click()
    expect(page.locator("#parts-picture tbody tr")).to_have_count(6)


def test_without_an_engine_it_waits(
    fake_engine: FakeEngine, fake_server: LiveApp, open_page: OpenPage
) -> None:
    fake_engine.state = "restarting"
    page = open_page(fake_server, f"{PATH}?lang=en")
    expect(page.locator("#look-status")).to_contain_text("The picture comes by itself.")
    for button in ("#look", "#measure", "#lens [data-run]", "#skip [data-run]"):
        expect(page.locator(button)).to_be_disabled()


@pytest.mark.parametrize("name", ["layers.sh", "layers.py"])
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
    assert "Rome" in done.stdout


@pytest.mark.parametrize(
    ("theme", "language", "size"),
    [("light", "en", DESKTOP), ("dark", "zh-Hans", PHONE)],
)
def test_its_looks(
    tiny_server: LiveApp, open_page: OpenPage, theme: str, language: str, size: dict[str, int]
) -> None:
    page = open_page(
        tiny_server, f"{PATH}?lang={language}", color_scheme=theme, viewport=size, bypass_csp=True
    )
    page.locator("#ffn tbody tr").first.wait_for()
    page.locator("#lens [data-run]").click()
    page.locator("#lens .lens-cell[data-settled=first]").nth(2).wait_for()
    page.locator("#parts-picture .part-line").first.wait_for()
    page.locator("#skip [data-run]").click()
    page.locator("#skip .comparison").wait_for()
    found = Axe().run(page).response["violations"]
    assert [f"{v['id']}: {[n['target'] for n in v['nodes']]}" for v in found] == []
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0
