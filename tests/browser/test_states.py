"""What happens around a run: pages that are missing, left, printed, or without their server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import OpenPage, run, start, until
from tests.browser.test_accessibility import violations
from tests.webapp.fake_engine import SMOLLM2, FakeEngine
from tests.webapp.live_server import LiveApp, running_app
from webapp.settings import Settings

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


def leave_in_mid_run(page: Page, engine: FakeEngine) -> None:
    engine.endless, engine.pause_s = True, 0.02
    page.click("#more")
    page.fill("#temperature", "0.35")
    page.fill("#top_k", "40")
    page.get_by_role("radio", name="a beginning").check(force=True)
    page.get_by_role("radio", name="bfloat16").check(force=True)
    start(page, "mine, and\nlong to type", tokens=400)
    page.locator(".token").nth(3).wait_for()


def expect_kept(page: Page) -> None:
    expect(page.locator("#prompt")).to_have_value("mine, and\nlong to type")
    expect(page.locator("#temperature")).to_have_value("0.35")
    expect(page.locator("#temperature-slider")).to_have_value("0.35")
    expect(page.locator("#max_tokens")).to_have_value("400")
    expect(page.locator("#top_k")).to_be_visible()
    expect(page.locator("#top_k")).to_have_value("40")
    expect(page.locator("input[name=mode][value=text]")).to_be_checked()
    expect(page.locator("input[name=dtype][value=bfloat16]")).to_be_checked()
    expect(page.locator(".roof")).to_have_attribute("data-dtype", "bfloat16")


def test_another_language_or_a_reload_keeps_what_was_typed(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    leave_in_mid_run(page, fake_engine)
    page.get_by_role("link", name="中文").click()
    expect(page.locator("#status")).to_have_text("离开页面时，这次运行随之结束。")
    expect_kept(page)
    until(page, lambda: not fake_engine.running)
    page.reload()
    expect(page.locator("#status")).to_have_text("还没有运行过。")
    expect_kept(page)
    fake_engine.endless = False
    run(page)
    assert fake_engine.requests[-1].prompt == "mine, and\nlong to type"
    assert fake_engine.requests[-1].weights == "bfloat16"


def test_a_precision_is_kept_until_the_engine_has_told_its_own(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    page.get_by_role("radio", name="bfloat16").check(force=True)
    fake_engine.state, info, fake_engine.info = "starting", fake_engine.info, None
    page.reload()
    expect(page.locator("#dtype")).not_to_contain_text("bfloat16")
    page.reload()
    fake_engine.state, fake_engine.info = "ready", info
    expect(page.locator("input[name=dtype][value=bfloat16]")).to_be_checked()
    expect(page.locator(".roof")).to_have_attribute("data-dtype", "bfloat16")


def test_without_storage_the_page_works(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, "about:blank")
    page.add_init_script(
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new Error('no'); } })"
    )
    page.goto("/")
    assert run(page, "no storage") == "done"


def test_a_server_that_is_gone_and_comes_back(fake_engine: FakeEngine, faulty_page: Page) -> None:
    page = faulty_page
    fake_engine.endless, fake_engine.pause_s = True, 0.02
    status = page.locator("#status")
    engine = page.locator("#engine")
    with running_app(Settings(), fake_engine) as server:
        page.goto(server.url)
        start(page, "abc", tokens=400)
        page.locator(".token").nth(3).wait_for()
        port = server.port
    expect(engine).to_contain_text("The server cannot be reached.")
    expect(engine).to_have_attribute("data-ready", "no")
    expect(page.locator("#go")).to_be_disabled()
    expect(status).to_contain_text("The server is being stopped.")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator("#elsewhere-answer")).to_contain_text("the server cannot be reached")

    fake_engine.endless = False
    with running_app(Settings(), fake_engine, port):
        expect(engine).to_have_attribute("data-ready", "yes")
        expect(engine).to_contain_text("fake cpu")
        expect(status).to_contain_text("It is ready again")
        expect(page.locator("#go")).to_be_enabled()
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#elsewhere-answer")).to_contain_text("predicted")
        assert run(page, "again") == "done"


def test_a_character_of_several_tokens_is_drawn_whole(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    text = "a\U0001f469\u200d\U0001f680b e\u0301 \U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea!"
    run(page, text)
    tokens = page.locator(".token")
    assert tokens.all_text_contents() == [
        "a", "\U0001f469\u200d\U0001f680", "", "", "b", " ", "e\u0301", "", " ",
        "\U0001f1eb\U0001f1f7", "", "\U0001f1e9\U0001f1ea", "", "!",
    ]  # fmt: skip
    expect(page.locator("#text [data-check]")).to_have_text(
        "9 characters; the streamed pieces equal the whole decode."
    )
    tokens.nth(3).focus()
    expect(page.locator("[data-card]")).to_contain_text("an earlier token began")
    expect(page.locator("[data-card]")).to_contain_text("token 4")
    tokens.nth(4).focus()
    expect(page.locator("[data-card]")).not_to_contain_text("an earlier token began")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_paper_is_light_and_tells_the_settings(
    fake_server: LiveApp, open_page: OpenPage, theme: str
) -> None:
    page = open_page(fake_server, color_scheme=theme)
    page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
    page.reload()
    page.fill("#temperature", "0.35")
    run(page, "the prompt of the run", tokens=9)
    page.fill("#prompt", "typed after it")
    printed = page.locator(".printed")
    expect(printed).to_be_hidden()
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(29, 32, 37)"
    for words in ("the prompt of the run", "0.35", "9", "float32", "Seed"):
        expect(printed).to_contain_text(words)
    expect(printed.get_by_text("Top-k")).to_be_hidden()
    for control in page.locator("button:not(.stage), #ask input, textarea").all():
        expect(control).to_be_hidden()
