"""The lesson on serving many: each of its tasks, by keyboard, on the real engine."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.lessons.scripts import run_script
from tests.browser.lessons.test_kv_cache import LONG_MS, press
from tests.webapp.live_server import LiveApp

pytestmark = [pytest.mark.browser, pytest.mark.serial]


def test_people_and_a_long_prompt_share_steps(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/serving")
    expect(page.locator("#together-go")).to_be_disabled()
    press(page, "input[name=guess] >> nth=2", "Space")
    press(page, "#together-go", "Enter")
    page.locator("#truth").wait_for(timeout=LONG_MS)
    expect(page.locator("#truth")).to_contain_text("the last of four was done after")
    assert page.locator("#together .race-row").count() == 5
    assert page.locator("#together .race-row rect.decode").count() == 5 * 63
    expect(page.locator("#together [data-sum]")).to_contain_text("by up to 4")
    expect(page.locator("#task-together")).to_have_attribute("data-done", "yes")

    press(page, "#person-clear", "Enter")
    press(page, "#person-add", "Enter")
    page.locator("#together rect.decode").nth(2).wait_for(state="attached")
    press(page, "#long-add", "Enter")
    table = page.locator("#together tbody tr")
    expect(table.nth(1).locator("td").nth(2)).to_have_text("24", timeout=LONG_MS)
    # Its prompt took more steps than one, and the other got a token in each of them.
    assert int(table.nth(1).locator("td").nth(1).text_content() or "0") >= 2
    press(page, "#together-step", "Home", "Space")
    told = page.locator("#together [data-told]")
    expect(told).to_contain_text("Step 2 of")
    expect(told).to_contain_text("Person 1: next token")
    expect(page.locator("#task-interleave")).to_have_attribute("data-done", "yes")


def test_shared_beginnings_and_drafts(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/serving")
    page.fill("#prefix-prompt", "The tide table of the little harbour lists every hour. " * 4)
    press(page, "#prefix-go", "Enter")
    expect(page.locator("#prefix [data-found]")).to_contain_text(
        "The second question found", timeout=LONG_MS
    )
    rows = page.locator(".prefix-row")
    assert rows.nth(1).locator(".cached").count() >= 2
    expect(page.locator("#task-prefix")).to_have_attribute("data-done", "yes")

    page.locator("#drafts-length").select_option("24")
    press(page, "#drafts-go", "Enter")
    expect(page.locator("#drafts [data-found]")).to_contain_text(
        "With drafts by a look-up", timeout=LONG_MS
    )
    values = page.locator("#drafts tbody td").all_inner_texts()
    accepted, drafted = (int(part) for part in values[0].split(" / "))
    assert page.locator(".draft.right").count() == accepted
    assert page.locator(".draft").count() == drafted
    assert values[-1] == "24 / 24"
    expect(page.locator("#task-drafts")).to_have_attribute("data-done", "yes")


def test_its_scripts_run(real_server: LiveApp) -> None:
    told = run_script("serving.sh", real_server.url).splitlines()
    assert [line.split()[0] for line in told] == ["1", "32"]
    rows = run_script("serving.py", real_server.url).splitlines()
    preempted = [int(row.split()[2]) for row in rows]
    assert preempted[0] == 0
    assert preempted == sorted(preempted)
    assert preempted[-1] > 0
