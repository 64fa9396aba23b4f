"""The five stages of the way: by keyboard, in their place, and what each token was chosen from."""

from __future__ import annotations

import math

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PHONE, OpenPage
from tests.webapp.live_server import LiveApp

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("state_dir")]


def test_stages_by_keyboard(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, "/runs/example")
    expect(page.locator("#run")).to_have_attribute("data-state", "done")
    page.focus("#stage-tokens")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#stage-choices")).to_be_focused()
    page.keyboard.press("Enter")
    panel = page.locator("#panel-choices")
    expect(panel).to_be_visible()
    page.keyboard.press("Home")
    expect(page.locator("#stage-tokens")).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.locator("#stage-choices")).to_be_focused()


def test_the_choices_of_every_token_are_shown(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, "/runs/example")
    expect(page.locator("#run")).to_have_attribute("data-state", "done")
    document = page.evaluate("fetch('/api/v1/runs/example').then((answer) => answer.json())")
    tokens = [event for event in document["run"]["events"] if event["type"] == "token"]
    page.click("#stage-choices")
    panel = page.locator("#panel-choices")
    page.locator(".token").nth(4).focus()
    expect(panel).to_contain_text("Token 5 of the answer")
    chosen = panel.locator(".chosen")
    expect(chosen).to_have_count(1)
    expect(chosen.locator("th")).to_have_text(tokens[4]["piece"].replace(" ", "·"))
    shares = [
        float(share.removesuffix("%"))
        for share in panel.locator(".bar-fill").evaluate_all(
            "bars => bars.map((bar) => bar.style.getPropertyValue('--share'))"
        )
    ]
    assert sum(shares) == pytest.approx(100, abs=0.01)
    likeliest = max(top["logprob"] for top in tokens[4]["top_logprobs"])
    assert shares[0] == pytest.approx(100 * math.exp(likeliest))


def test_an_open_stage_unfolds_in_its_place(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, "/runs/example", viewport=PHONE)
    page.click("#stage-tokens")
    expect(page.locator(".piece-chip").first).to_be_visible()
    tops = [
        page.locator(place).bounding_box()["y"]  # pyright: ignore[reportOptionalSubscript]
        for place in ("#stage-tokens", "#panel-tokens", "#stage-vectors")
    ]
    assert tops == sorted(tops)
