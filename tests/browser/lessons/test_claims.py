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
