"""Lesson 7 in Chromium: every task by keyboard, on the real engine."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.lessons.scripts import run_script
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp

pytestmark = [pytest.mark.browser, pytest.mark.serial]


def is_done(page: Page, task: str) -> None:
    expect(page.locator(f'[data-task="{task}"]')).to_have_attribute(
        "data-done", "yes", timeout=60_000
    )


def press(page: Page, selector: str) -> None:
    page.focus(selector)
    page.keyboard.press("Enter")


def test_every_task_by_keyboard(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/phases")
    page.focus('input[name="guess"]')
    page.keyboard.press("Space")
    page.fill("#answer-tokens", "6")
    press(page, "#guess-run")
    is_done(page, "run")
    expect(page.locator("#truth")).to_contain_text("times as long")
    assert page.locator('label[data-truth="right"]').count() == 1
    assert page.locator("#strip .block.prefill").count() == 1
    assert page.locator("#strip .block.decode").count() == 5
    expect(page.locator("#busy-rows tr").first).to_contain_text("%")

    page.focus("#strip-bar")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    is_done(page, "steps")
    step = page.locator('#busy-rows [data-phase="step"]')
    expect(step).to_contain_text("step 2: decode")

    page.select_option("#place", "h100-sxm")
    change = page.locator("#lengths-change")
    expect(page.locator("#forecast .guess")).to_have_count(2)
    for field, said in (("#prompt-tokens", "Prompt from"), ("#output-tokens", "Answer from")):
        page.focus(field)
        page.keyboard.press("Control+A")
        page.keyboard.type("2048")
        expect(change).to_contain_text(said)
    expect(change).to_contain_text("TTFT unchanged")
    is_done(page, "alone")

    press(page, "#sweep-run")
    is_done(page, "sweep")
    expect(page.locator("#sweep-picture svg.wide .dot")).to_have_count(12)


def test_measured_beside_predicted_lengths(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/phases?lang=zh-Hans")
    page.fill("#prompt", "灯塔")
    page.fill("#prompt-tokens", "24")
    page.fill("#output-tokens", "4")
    press(page, "#measure")
    expect(page.locator("#lengths-measured")).to_contain_text("回答 4 个 token", timeout=30_000)


def test_its_scripts(real_server: LiveApp) -> None:
    told = run_script("phases.py", real_server.url).splitlines()
    assert [line.split(":")[0] for line in told] == [
        "prompt 512, answer 64", "prompt 4096, answer 64", "prompt 512, answer 512",
    ]  # fmt: skip
    assert run_script("phases.sh", real_server.url).count('"ttft"') == 3


def test_an_engine_that_comes_later(
    fake_engine: FakeEngine, fake_server: LiveApp, open_page: OpenPage
) -> None:
    fake_engine.state, info, fake_engine.info = "starting", fake_engine.info, None
    page = open_page(fake_server, "/learn/phases")
    for button in ("#go", "#guess-run", "#sweep-run", "#measure"):
        expect(page.locator(button)).to_be_disabled()
    expect(page.locator("#status")).to_contain_text("not ready yet")
    expect(page.locator("#forecast")).to_contain_text("not ready yet")
    fake_engine.state, fake_engine.info = "ready", info
    expect(page.locator("#forecast")).to_contain_text("has not been measured")
    expect(page.locator("#status")).to_be_empty()
    press(page, "#go")
    is_done(page, "run")
