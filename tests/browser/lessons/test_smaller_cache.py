"""Smaller caches by keyboard on the real model: the guess, each task, the scripts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, OpenPage
from tests.webapp.live_server import LiveApp
from webapp.lessons.lesson import SCRIPTS
from webapp.rendering import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.serial]

PROMPT = (
    "Once upon a time there was a fox, and every morning the fox said to the river: good morning"
)
SLOW_MS = 60_000


def done(page: Page, task: str) -> None:
    expect(page.locator(f"[data-task={task}]")).to_have_attribute(
        "data-done", "yes", timeout=SLOW_MS
    )


def opened(server: LiveApp, open_page: OpenPage, **options: object) -> Page:
    page = open_page(server, "/learn/smaller-cache", **options)
    page.evaluate("document.getElementById('variants').dataset.tokens = '16'")  # quicker
    page.get_by_role("textbox", name="Your prompt").fill(PROMPT)
    page.keyboard.press("Tab")
    return page


def test_three_caches_and_then_a_window(real_server: LiveApp, open_page: OpenPage) -> None:
    page = opened(real_server, open_page)
    page.get_by_label("C", exact=True).select_option("contiguous")
    page.get_by_role("button", name="Run all three").focus()
    page.keyboard.press("Enter")
    done(page, "quantized")
    expect(page.locator(".variants-status")).to_contain_text("Done: 3 forms")
    sizes = page.locator(".variants-sizes tbody tr")
    expect(sizes).to_have_count(3)
    assert "100%" in sizes.nth(2).inner_text()  # where the cache lies changes nothing
    expect(page.locator(".variant[data-form=contiguous]")).to_contain_text("the same as A's")
    # One tab stop for all bars, arrows between them; each says its token and its KL.
    bars = page.locator(".variant[data-form=paged-int8] .kl")
    bars.first.focus()
    page.keyboard.press("ArrowRight")
    expect(bars.nth(1)).to_be_focused()
    readout = page.locator(".variant[data-form=paged-int8] .kl-readout")
    expect(readout).to_contain_text("after token 2")
    # A contiguous cache sets aside a whole slab; a paged one wastes less than a block.
    paging = page.locator("#paging tbody tr")
    expect(paging).to_have_count(3)
    assert paging.nth(2).locator("td").last.inner_text().startswith("99.")

    page.locator("#window-size").focus()
    page.keyboard.press("Home")
    page.locator("#window-sinks").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".window-readout")).to_contain_text("paged-window-2-sinks-1")
    page.locator(".window-twin").evaluate("node => node.closest('details').open = true")
    expect(page.locator(".window-twin tbody tr").first).to_contain_text("a sink")
    page.get_by_role("button", name="Run this window as C").focus()
    page.keyboard.press("Enter")
    done(page, "window")
    expect(page.locator(".variant[data-form=paged-window-2-sinks-1] .kl-bars")).to_be_visible(
        timeout=SLOW_MS
    )


def test_the_guess_is_measured(real_server: LiveApp, open_page: OpenPage) -> None:
    page = opened(real_server, open_page)
    button = page.get_by_role("button", name="Measure it on the prompt below")
    expect(button).to_be_disabled()
    page.get_by_label("It takes more than half of it away").check()
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#truth")).to_contain_text("Measured over", timeout=SLOW_MS)
    expect(page.locator('#guess label[data-truth="right"]')).to_have_count(1)


def test_what_is_predicted_turns_with_its_knobs(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, "/learn/smaller-cache", viewport=PHONE)
    expect(page.locator("#heads-answer [data-own=GQA]")).to_be_visible()
    page.locator("#heads-model").select_option("deepseek-v3")
    expect(page.locator("#heads-answer [data-own=MLA]").first).to_be_visible()
    done(page, "heads")
    context = page.locator("#context")
    context.focus()
    expect(context).to_have_attribute("aria-valuetext", "1,048,576")
    page.keyboard.press("Home")
    page.get_by_text("beside V3.2 at 1,024 positions").first.wait_for()
    done(page, "million")


@pytest.mark.parametrize("command", [["sh"], [sys.executable]])
def test_its_scripts_run(real_server: LiveApp, command: list[str]) -> None:
    ending = "sh" if command == ["sh"] else "py"
    ran = subprocess.run(
        [*command, str(SCRIPTS / f"smaller-cache.{ending}")],
        env={**os.environ, "SERVICE": real_server.url},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "kl" in ran.stdout.lower()
