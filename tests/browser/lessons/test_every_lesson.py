"""What holds for every lesson's page on the real engine: axe finds nothing, nothing overflows."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import DESKTOP, OpenPage
from tests.webapp.live_server import LiveApp
from webapp.lessons.catalogue import LESSONS

pytestmark = [pytest.mark.browser, pytest.mark.serial]

LOOKS = (
    ("light", "zh-Hans", {"width": 360, "height": 740}),
    ("dark", "en", DESKTOP),
)
PATHS = ("/learn?q=token", "/glossary", "/claims", *(f"/learn/{lesson.slug}" for lesson in LESSONS))


UNSTYLED = """() => [...document.querySelectorAll("main svg text")]
    .filter((text) => text.checkVisibility() && getComputedStyle(text).fill === "rgb(0, 0, 0)")
    .map((text) => text.textContent)"""
"""Texts of pictures that no style sheet reaches: SVG's own black, which is not read in the dark."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("theme", "language", "size"), LOOKS)
def test_page(
    real_server: LiveApp,
    open_page: OpenPage,
    path: str,
    theme: str,
    language: str,
    size: dict[str, int],
) -> None:
    page = open_page(
        real_server,
        f"{path}{'&' if '?' in path else '?'}lang={language}",
        color_scheme=theme,
        viewport=size,
        bypass_csp=True,  # axe is injected as an inline script
    )
    page.wait_for_load_state("networkidle")
    for summary in page.locator("main summary").all():
        if summary.is_visible():
            summary.click()
    found = Axe().run(page).response["violations"]
    assert [f"{v['id']}: {[n['target'] for n in v['nodes']]}" for v in found] == []
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0
    assert page.locator("h1").count() == 1
    assert page.evaluate(UNSTYLED) == []
