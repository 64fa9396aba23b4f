"""What the widgets say about a run, over a websocket whose other side a test plays."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage, run
from tests.webapp.live_server import LiveApp

pytestmark = pytest.mark.browser


def test_precision_can_be_changed_after_a_run(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server)
    marks = page.locator("#roofline svg.wide .measured .mark")
    roof = page.locator("#roofline > .roof")
    for dtype in ("float32", "bfloat16", "float32"):
        page.get_by_role("radio", name=dtype).check(force=True)
        expect(roof).to_have_attribute("data-dtype", dtype)
        assert run(page, "eight letters", tokens=8) == "done"
        expect(marks.first).to_be_attached()
        expect(page.locator("#roofline [data-note]")).not_to_contain_text("not drawn")
    for dtype in ("bfloat16", "float32"):
        page.get_by_role("radio", name=dtype).check(force=True)
        expect(roof).to_have_attribute("data-dtype", dtype)
    expect(marks.first).to_be_attached()
