"""The default model, end to end: prompts stream in, stop, and share steps."""

from __future__ import annotations

import os
import re
import signal

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, finish, run, start
from tests.webapp.live_server import LiveApp, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.serial]


def assert_streamed(page: Page) -> None:
    """What is on the page is the whole answer, token for token."""
    answer = page.locator(".tokens")
    assert answer.evaluate("node => node.textContent") == answer.get_attribute("data-text")
    expect(page.locator("[data-check]")).to_contain_text("equal the whole decode")
    count = page.locator(".token").count()
    assert count >= 2
    assert page.locator("#steps summary .soft").inner_text() == f"({count})"
    assert page.locator(".layer-blocks rect").count() == count, "one block a step"
    assert page.locator(".layer-blocks rect.prefill").count() == 1


@pytest.mark.parametrize("pick", ["English", "Chinese", "emoji"])
def test_prompts_stream_to_the_end(real_server: LiveApp, open_page: OpenPage, pick: str) -> None:
    page = open_page(real_server)
    page.get_by_role("button", name=pick, exact=True).click()
    assert run(page, tokens=24) == "done"
    assert_streamed(page)
    for card in ("#ttft", "#itl"):
        value = page.locator(f"{card} [data-value]").inner_text()
        assert float(value.replace(",", "")) > 0
        expect(page.locator(card)).to_contain_text("measured")
        expect(page.locator(card)).to_contain_text("this machine has not been measured")
    for stage in ("tokens", "vectors", "layers", "choices", "token"):
        assert re.fullmatch(
            r"[\d.,]+\sm?s", page.locator(f"#stage-{stage} [data-time]").inner_text()
        )


def test_a_character_over_several_tokens(real_server: LiveApp, open_page: OpenPage) -> None:
    """Tokens that end inside a character show a mark and no text; none is cut in two."""
    page = open_page(real_server)
    page.get_by_role("radio", name="a beginning").check(force=True)
    page.fill("#temperature", "0")
    assert run(page, "🦊🐢👩‍🚀🦊🐢👩‍🚀🦊🐢👩‍🚀🦊", tokens=24) == "done"
    assert_streamed(page)
    assert not any("\ufffd" in text for text in page.locator(".token").all_inner_texts())
    assert page.locator(".token.silent").count() > 0


def test_the_same_seed_gives_the_same_answer(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server)
    page.click("#more")
    page.fill("#seed", "7")
    page.fill("#temperature", "1")
    answers = []
    for _ in range(2):
        run(page, "Name a colour.", tokens=12)
        answers.append(page.locator(".tokens").get_attribute("data-text"))
    assert answers[0] == answers[1]
    expect(page.locator("#status")).to_contain_text("Seed 7")


@pytest.mark.parametrize("how", ["button", "key"])
def test_stop(real_server: LiveApp, open_page: OpenPage, how: str) -> None:
    page = open_page(real_server)
    page.get_by_role("radio", name="a beginning").check(force=True)
    start(page, "Once upon a time", tokens=400)
    page.locator(".token").nth(3).wait_for()
    if how == "button":
        page.click("#stop")
    else:
        page.keyboard.press("Escape")
    assert finish(page) == "done"
    expect(page.locator("#status")).to_contain_text("Stopped by you")
    assert page.locator(".token").count() < 400
    expect(page.locator("#go")).to_be_visible()


def test_two_people_share_steps(real_server: LiveApp, open_page: OpenPage) -> None:
    first, second = open_page(real_server), open_page(real_server)
    for page in (first, second):
        page.get_by_role("radio", name="a beginning").check(force=True)
        page.fill("#temperature", "0")
    start(first, "The ship left the harbour and", tokens=60)
    first.locator(".token").nth(2).wait_for()
    start(second, "In the year 1900,", tokens=20)
    second.locator(".token").nth(2).wait_for()
    expect(second.locator("[data-company]")).to_contain_text(
        re.compile("2 prompts share each step|shared with other prompts")
    )
    for page in (first, second):
        finish(page)
        expect(page.locator("[data-company]")).to_contain_text("up to 2 at once")
        assert page.locator(".layer-mates rect").count() > 0
        assert_streamed_together(page)


def assert_streamed_together(page: Page) -> None:
    answer = page.locator(".tokens")
    assert answer.evaluate("node => node.textContent") == answer.get_attribute("data-text")
    page.locator("#steps summary").click()
    page.locator("#steps tbody tr").first.wait_for()
    shared = page.locator("#steps tbody tr td:nth-of-type(2)", has_text="2")
    expect(shared.first).to_be_visible()


def test_a_killed_worker_is_told_and_comes_back(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server)
    page.get_by_role("radio", name="a beginning").check(force=True)
    start(page, "Once upon a time", tokens=400)
    page.locator(".token").nth(2).wait_for()
    engine = real_server.engine
    os.kill(engine.pid, signal.SIGKILL)
    page.locator("#run[data-state=failed]").wait_for(timeout=2_000)
    expect(page.locator("#status")).to_contain_text("The engine stopped in the middle")
    expect(page.locator("#engine")).to_contain_text("starting again")
    expect(page.locator("#go")).to_be_disabled()
    page.locator("#engine[data-ready=yes]").wait_for(timeout=60_000)
    wait_for(lambda: str(engine.state) == "ready", 5)
    expect(page.locator("#again")).to_be_enabled()
    page.fill("#max_tokens", "5")
    page.click("#again")
    assert finish(page) == "done"
    assert page.locator(".token").count() <= 5
