"""Claims over a fake engine: how long a check takes, and what is said when it fails."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.conftest import OpenPage
from tests.webapp.live_server import LiveApp

pytestmark = pytest.mark.browser

USUAL = re.compile(r"^about \d+ s, longer on a busy machine$")


def test_a_check_tells_its_time_and_keeps_the_focus(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/claims")
    waiting: list[Route] = []

    def keep_waiting(route: Route) -> None:
        waiting.append(route)

    page.route("**/fragments/claims/C13*", keep_waiting)
    claim = page.locator("#C13")
    time, bar, button = (claim.locator(name) for name in (".claim-time", "progress", "button"))
    expect(time).to_have_text(USUAL)
    expect(bar).to_be_hidden()
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_be_disabled()
    expect(bar).to_be_visible()
    expect(time).to_have_text(re.compile(r"^1 s so far, of about \d+$"))
    waiting.pop().fulfill(status=200, content_type="text/html", body="<p class='verdict'>so</p>")
    expect(claim.locator(".verdict")).to_have_text("so")
    expect(time).to_have_text(USUAL)
    expect(bar).to_be_hidden()
    expect(button).to_be_focused()


def test_a_server_that_is_away_is_told(fake_server: LiveApp, browser: Browser) -> None:
    page = browser.new_page(base_url=fake_server.url)  # the browser itself logs what was lost
    page.route(re.compile(r"/fragments/claims/C1[34]"), lambda route: route.abort())
    page.goto("/learn/kv-cache?lang=zh-Hans")
    for asked in ("#C14", "#C13"):
        if asked == "#C13":
            page.locator("#C13 button").click()
        expect(page.locator(f"{asked} .warn")).to_contain_text("没有连上服务器")
    expect(page.locator("#C13 button")).to_be_enabled()
    page.close()


def test_all_are_measured_with_one_press_and_counted(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/claims")
    asked: list[str] = []

    def answer(route: Route) -> None:
        claim = route.request.url.rpartition("/")[2]
        asked.append(claim)
        verdict = "wrong" if claim == "C03" else "right"
        body = f"<p class='verdict' data-verdict='{verdict}'><b>{verdict}</b></p>"
        route.fulfill(status=200, content_type="text/html", body=body)

    page.route(re.compile(r"/fragments/claims/C\d\d$"), answer)
    page.reload()
    button = page.get_by_role("button", name=re.compile("^Measure all that is left"))
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#verdict-count")).to_have_text(
        "25 with a verdict: 24 right, 0 with a caveat, 1 wrong."
    )
    assert sorted(asked) == [f"C{n:02}" for n in range(1, 26)], "each of them once"
    expect(button).to_be_hidden()
    chip = page.get_by_role("navigation", name="All claims at a glance").get_by_role("link")
    expect(chip).to_have_count(25)
    expect(page.locator("[data-chip=C03]")).to_have_attribute("data-verdict", "wrong")
    expect(page.locator("[data-chip=C03]")).to_have_text("C03wrong")
