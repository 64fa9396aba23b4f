"""The loop and the choice of a token: clean in use, patient without a model."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import DESKTOP, OpenPage
from tests.browser.test_accessibility import violations
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp, running_app
from webapp.settings import Settings

pytestmark = pytest.mark.browser


def overflow(page: Page) -> int:
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


@pytest.mark.serial
@pytest.mark.parametrize(
    ("theme", "language", "size"),
    [("light", "en", DESKTOP), ("dark", "zh-Hans", {"width": 360, "height": 740})],
)
def test_in_use_they_are_clean(
    real_server: LiveApp, open_page: OpenPage, theme: str, language: str, size: dict[str, int]
) -> None:
    look = {"color_scheme": theme, "viewport": size, "bypass_csp": True}
    loop = open_page(real_server, f"/learn/loop?lang={language}", **look)
    loop.locator("[data-begin]").click()
    option = loop.locator("#candidates[aria-busy=false] [role=option]").first
    option.wait_for()
    for key in (" ", "ArrowLeft", "ArrowDown", " "):
        loop.keyboard.press(key)
        option.wait_for()
    loop.locator(".twin summary").click()
    assert loop.locator(".way").count() == 2
    assert violations(loop) == []
    assert overflow(loop) <= 0

    sampling = open_page(real_server, f"/learn/sampling?lang={language}", **look)
    sampling.locator("[data-look]").click()
    sampling.locator(".curve svg").wait_for()
    sampling.locator("[data-preset='14 0 10 0']").click()
    sampling.locator("[data-thousand]").click()
    sampling.locator("[data-write]").click()
    sampling.locator("#task-answers[data-done]").wait_for()
    assert violations(sampling) == []
    assert overflow(sampling) <= 0


@pytest.mark.parametrize(
    ("path", "button"), [("loop", "[data-begin]"), ("sampling", "[data-look]")]
)
def test_without_an_engine_they_wait_and_come_back(
    open_page: OpenPage, path: str, button: str
) -> None:
    engine = FakeEngine(state="starting", reason="the model is being loaded")
    with running_app(Settings(), engine) as server:
        engine.state = "starting"
        page = open_page(server, f"/learn/{path}")
        line = page.locator("[data-line]")
        expect(line).to_contain_text("The engine is not ready yet.")
        expect(page.locator(button)).to_be_disabled()
        engine.state = "ready"
        expect(line).to_contain_text("The engine is ready")
        expect(page.locator(button)).to_be_enabled()


@pytest.mark.parametrize(
    ("path", "button"), [("loop", "[data-begin]"), ("sampling", "[data-look]")]
)
def test_a_refusal_is_said_and_the_next_try_is_open(
    browser: Browser, fake_server: LiveApp, path: str, button: str
) -> None:
    """Not with ``open_page``: the browser logs the refused request, as it should."""
    context = browser.new_context(base_url=fake_server.url, locale="en-GB")
    page = context.new_page()
    page.goto(f"/learn/{path}")
    page.locator(button).click()
    line = page.locator("[data-line]")
    expect(line).to_have_class(re.compile("problem"))
    expect(line).not_to_be_empty()
    expect(page.locator("#announce")).to_have_text(line.inner_text())
    expect(page.locator(button)).to_be_enabled()
    context.close()
