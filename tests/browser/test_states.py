"""What happens around a run: pages that are missing, left, printed, or without their server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import OpenPage, run
from tests.browser.test_accessibility import violations
from tests.webapp.fake_engine import SMOLLM2, FakeEngine
from tests.webapp.live_server import LiveApp

pytestmark = pytest.mark.browser


@pytest.fixture
def faulty_page(browser: Browser) -> Iterator[Page]:
    """A page that may log errors: what it meets is not as it should be."""
    context = browser.new_context(
        viewport={"width": 1240, "height": 900},
        locale="en-GB",
        color_scheme="light",
        bypass_csp=True,
    )
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("language", ["en", "zh-Hans"])
def test_a_missing_page_has_a_theme_and_no_barrier(
    fake_server: LiveApp, faulty_page: Page, language: str
) -> None:
    page = faulty_page
    page.goto(f"{fake_server.url}/no/such/page?lang={language}")
    theme = page.locator("#theme")
    expect(theme).to_have_text({"en": "Theme: auto", "zh-Hans": "主题：自动"}[language])
    assert violations(page) == []
    theme.click()
    theme.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert violations(page) == []


def test_elsewhere_compares_like_with_like(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    fake_engine.info = SMOLLM2
    page = open_page(fake_server)
    run(page, "twelve chars", tokens=8)
    measured = page.locator("#elsewhere-answer").get_by_text("Here it was measured")
    expect(page.locator("#e-model")).to_have_value("smollm2-135m")
    expect(page.locator("#e-weights")).to_have_value("fp32")
    expect(measured).to_have_count(2)
    page.select_option("#e-weights", "bf16")
    expect(measured).to_have_count(0)
    page.select_option("#e-weights", "fp32")
    expect(measured).to_have_count(2)
    page.select_option("#e-model", "gpt2")
    expect(measured).to_have_count(0)
    run(page, "twelve chars", tokens=8)
    expect(page.locator("#e-model")).to_have_value("gpt2")  # what the reader chose stays
