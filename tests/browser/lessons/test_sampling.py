"""Choosing a token, by keyboard on the real model: settings, draws, answers, scripts."""

from __future__ import annotations

import re

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, OpenPage
from tests.browser.lessons.scripts import run_script
from tests.webapp.live_server import LiveApp

pytestmark = [pytest.mark.browser, pytest.mark.serial]

PROMPT = "I opened the door and saw"

_SLIDE = """([id, values]) => values.map((value) => {
  const slider = document.getElementById(id);
  slider.value = String(value);
  const start = performance.now();
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  document.body.offsetHeight; // laid out, not only changed
  return performance.now() - start;
}).sort((a, b) => a - b)"""


def look(page: Page) -> None:
    page.get_by_role("button", name="Run the model once").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("temperature", exact=False).first).to_be_focused(timeout=20_000)


def done(page: Page, task: str) -> None:
    expect(page.locator(f"[data-task={task}]")).to_have_attribute(
        "data-done", "yes", timeout=30_000
    )


def left(page: Page, stage: str) -> int:
    text = page.locator(f"[data-row={stage}] td").first.inner_text()
    return int(text.replace(",", ""))


def slide(page: Page, name: str, *keys: str) -> None:
    page.locator(f"[data-setting={name}]").focus()
    for key in keys:
        page.keyboard.press(key)


def test_its_tasks_by_keyboard(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/sampling")
    look(page)
    page.get_by_role("button", name="Draw a thousand", exact=True).focus()
    page.keyboard.press("Enter")
    done(page, "draw")
    told = page.locator("[data-drawn]")
    assert 550 < int(re.findall(r"(\d+) not the likeliest", told.inner_text())[0]) < 770
    assert page.locator("[data-order] .tok.other").count() > 0

    slide(page, "temperature", "Home")
    expect(page.locator("[data-miss]")).to_have_text("0%")
    page.get_by_role("button", name="Draw a thousand", exact=True).click()
    done(page, "freeze")
    expect(told).to_contain_text("1,000 draws, counted: 0 not the likeliest, 1 different")

    page.get_by_role("button", name="hot", exact=True).click()
    slide(page, "topP", *["ArrowRight"] * 10)
    wide = left(page, "topP")
    slide(page, "topP", "Home")
    slide(page, "minP", *["ArrowRight"] * 10)
    done(page, "cut")
    assert left(page, "minP") < 20 < 500 < wide
    assert left(page, "topP") == left(page, "own") == 49_152
    assert page.locator("[data-bars] tr.cut").count() > 1


def test_the_numbers_are_the_models(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/sampling", viewport=PHONE)
    look(page)
    asked = {"text": PROMPT, "position": 5, "k": 12}
    told = httpx2.post(f"{real_server.url}/api/v1/probes/next-token", json=asked, timeout=30).json()
    nats = told["entropy"]
    bits = float(page.locator("[data-row=own] td").nth(2).inner_text())
    assert bits == pytest.approx(nats / 0.693147, abs=0.01)
    names = page.locator("[data-bars] th").all_inner_texts()
    assert names[:12] == [token["piece"].replace(" ", "·") for token in told["top"]]
    assert page.locator("[data-setting=topK]").get_attribute("aria-valuetext") == "off"


def test_a_slider_is_a_picture_within_a_tenth_of_a_second(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, "/learn/sampling")
    look(page)
    before = page.locator(".curve .now").get_attribute("points")
    took = page.evaluate(_SLIDE, ["setting-temperature", list(range(21, 40))])
    assert page.locator(".curve .now").get_attribute("points") != before
    assert took[len(took) // 2] < 100, took


def test_answers_are_drawn_and_the_guess_is_settled(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, "/learn/sampling")
    page.get_by_label("More than half").check()
    page.get_by_role("button", name="Draw a thousand times").click()
    expect(page.locator("#truth")).to_contain_text("As you guessed.", timeout=20_000)
    expect(page.get_by_role("slider", name="temperature")).to_be_visible()
    write = page.get_by_role("button", name="Write all four")
    answers = page.locator("#answers .answer")
    texts: list[list[str]] = []
    for _ in range(2):
        write.click()
        expect(write).to_be_disabled()
        expect(write).to_be_enabled(timeout=30_000)
        texts.append(answers.all_inner_texts())
    done(page, "answers")
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 4
    assert answers.nth(0).locator(".tok.other").count() == 0
    assert answers.nth(1).locator(".tok.other").count() > 0
    expect(page.locator("[data-parting]")).to_contain_text("part at token")


@pytest.mark.parametrize("script", ["sampling.sh", "sampling.py"])
def test_its_scripts_run(real_server: LiveApp, script: str) -> None:
    assert " the" in run_script(script, real_server.url)
