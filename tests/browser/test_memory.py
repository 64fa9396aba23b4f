"""A page that streams for long does not grow: what it keeps of past runs is bounded."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import CDPSession, Page

from tests.browser.conftest import OpenPage, run
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp

pytestmark = pytest.mark.browser

# Half an hour at 30 tokens a second, in runs of 2,000 tokens; by default a part of it.
WHOLE = bool(os.environ.get("FIRSTTOKEN_PROGRAMS"))
RUNS, TOKENS = (27, 2000) if WHOLE else (4, 1000)
MOST_GROWTH = 10e6
TEXT = "the quick brown fox jumps over a lazy dog. " * 50


def heap_bytes(page: Page, session: CDPSession) -> float:
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
        page.wait_for_timeout(50)
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(entry["value"] for entry in metrics if entry["name"] == "JSHeapUsedSize")


@pytest.mark.timeout(600)
def test_streaming_for_half_an_hour(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    fake_engine.pause_s = 0.0
    page = open_page(fake_server)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    idle = heap_bytes(page, session)
    nodes = []
    for _ in range(RUNS):
        run(page, TEXT[:TOKENS], tokens=TOKENS)
        assert page.locator(".token").count() == TOKENS
        nodes.append(page.evaluate("document.getElementsByTagName('*').length"))
    assert heap_bytes(page, session) - idle <= MOST_GROWTH
    assert max(nodes[1:]) - min(nodes[1:]) <= 50, "the page itself stays as it was"
