"""axe finds nothing, in both themes, before a run and after, wide and narrow."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.conftest import DESKTOP, PHONE, OpenPage, run
from tests.webapp.live_server import LiveApp

pytestmark = pytest.mark.browser


def violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {[node['target'] for node in v['nodes']]}" for v in found]


@pytest.mark.parametrize(
    ("theme", "language", "size"),
    [("light", "en", DESKTOP), ("dark", "zh-Hans", DESKTOP), ("dark", "en", PHONE),
     ("light", "zh-Hans", PHONE)],
)  # fmt: skip
def test_axe(
    fake_server: LiveApp, open_page: OpenPage, theme: str, language: str, size: dict[str, int]
) -> None:
    # axe is injected as an inline script, which the page's own policy refuses.
    page = open_page(
        fake_server, f"/?lang={language}", color_scheme=theme, viewport=size, bypass_csp=True
    )
    assert violations(page) == []
    page.click("#more")
    run(page, "Is it slow to start, or slow to stream?", tokens=30)
    page.locator("#elsewhere-answer .guess").first.wait_for()
    page.locator("#steps summary").click()
    page.focus(".token >> nth=3")
    for stage in ("tokens", "layers"):
        page.evaluate("id => document.getElementById(id).click()", f"stage-{stage}")
        assert violations(page) == []


def test_reduced_motion_moves_nothing(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, reduced_motion="reduce")
    run(page, "calm")
    moving = page.evaluate("document.getAnimations().length")
    assert moving == 0
