"""The lesson on the KV cache: each of its tasks, by keyboard, on the real engine."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.lessons.scripts import run_script
from tests.webapp.live_server import LiveApp

pytestmark = [pytest.mark.browser, pytest.mark.serial]

LONG_MS = 120_000
"""What a run may take where others use the machine as well."""


def press(page: Page, target: str, *keys: str) -> None:
    page.locator(target).focus()
    for key in keys:
        page.keyboard.press(key)


def test_every_task_by_keyboard(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/kv-cache")
    expect(page.locator("#race-go")).to_be_disabled()
    press(page, "input[name=guess] >> nth=0", "Space")
    page.locator("#race-length").select_option("32")
    press(page, "#race-go", "Enter")
    page.locator("#truth").wait_for(timeout=LONG_MS)
    expect(page.locator("#truth")).to_contain_text("Measured just now, over 32 tokens")
    expect(page.locator("[data-agree]")).to_contain_text("32 of 32 tokens are the same")
    for row in ("paged", "off"):
        assert page.locator(f'[data-row="{row}"] rect').count() == 32
    # The last row of the table is the whole answer, and its factor stands above.
    last = page.locator("#race tbody tr").last.locator("td").all_text_contents()
    assert last[0] == "32"
    assert page.locator("[data-ratio]").inner_text().startswith(last[3])
    expect(page.locator("#task-race")).to_have_attribute("data-done", "yes")

    page.locator("#cells-length").select_option("16")
    press(page, "#cells-go", "Enter")
    page.locator("#cells-step:not([disabled])").wait_for(timeout=LONG_MS)
    press(page, "#cells-step", "Home")
    told = page.locator("#cells [data-told]")
    expect(told).to_contain_text(re.compile(r"Step 1 of 16, prefill.*wrote \d+ cells at once"))
    press(page, "#cells-step", "Space")
    expect(told).to_contain_text(re.compile(r"Step 2 of 16, decode.*wrote 1 cell"))
    filled = page.locator('.kv-grid .cell:not([data-state="free"])').count()
    expect(told).to_contain_text(f"read all {filled}")
    page.locator(".kv-grid .cell").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#cells [data-cell]")).to_contain_text("place 1 of block 0")
    expect(page.locator("#task-cells")).to_have_attribute("data-done", "yes")

    press(page, "#kv-context", "ArrowRight")
    expect(page.locator(".kv-found")).to_have_attribute("data-context", "2048")
    expect(page.locator("#task-starve")).to_have_attribute("data-done", "yes")


def test_its_claims(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/kv-cache")
    for claim, told in (("C14", "819,200 B"), ("C22", "54 → 27 → 13 → 6")):
        expect(page.locator(f"#{claim}")).to_contain_text(told)
    page.locator("#C13 button").click()
    expect(page.locator("#C13")).to_contain_text("Five times is no constant", timeout=LONG_MS)
    expect(page.locator("#C13")).to_contain_text("96 / 96")


def test_its_scripts_run(real_server: LiveApp) -> None:
    told = run_script("kv-cache.sh", real_server.url)
    assert "819.2 kB" in told
    assert "13 requests fit" in told
    rows = run_script("kv-cache.py", real_server.url).splitlines()
    assert [int(row.split("\t")[-1]) for row in rows] == [54, 27, 13]
