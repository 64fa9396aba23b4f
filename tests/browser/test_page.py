"""The page over a fake engine: text stays text, keys, connections, languages, themes, phones."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PHONE, OpenPage, finish, run, start, until
from tests.webapp.fake_engine import INFO, FakeEngine
from tests.webapp.live_server import LiveApp, running_app
from webapp.live.connection import MAX_MESSAGE_BYTES
from webapp.rendering import STATIC
from webapp.schemas.live_requests import MAX_PROMPT_BYTES, MAX_PROMPT_CHARS
from webapp.settings import Settings

pytestmark = pytest.mark.browser

MARKUP = (
    "<img src=x onerror=alert(1)><script>alert(2)</script>"
    "<svg onload=alert(3)>\"'><a href=javascript:alert(4) hx-get=/healthz hx-trigger=load>&lt;"
)


def test_markup_stays_text(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server)
    assert run(page, MARKUP, tokens=400) == "done"
    assert page.locator(".tokens").inner_text() == MARKUP
    page.click("#stage-tokens")
    page.get_by_role("button", name="more", exact=False).last.click()
    assert page.locator("main img, main script, #run a").count() == 0
    page.locator(".token").nth(0).hover()
    expect(page.locator("[data-card]")).to_contain_text("<")


def test_keyboard_alone(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("keyboard only")
    page.keyboard.press("Control+Enter")
    assert finish(page) == "done"

    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.role"))
        if reached[-1] == "stage-layers":
            page.keyboard.press("Enter")
            expect(page.locator("#panel-layers")).to_be_visible()
            page.keyboard.press("Enter")
            expect(page.locator("#panel-layers")).to_be_hidden()
        if reached[-1] == "strip-bar":
            break
    assert {"temperature", "max_tokens", "more", "go", "stage-tokens"} <= set(reached)

    page.keyboard.press("Home")
    expect(page.locator("#strip [data-readout]")).to_contain_text("step 1 of 13: prefill")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#strip-bar")).to_have_attribute("aria-valuenow", "2")
    expect(page.locator(".token[aria-selected=true]")).to_have_text("e")
    expect(page.locator("#replay")).to_be_visible()
    for _ in range(page.locator("#replay").locator("button:enabled, input").count()):
        page.keyboard.press("Tab")  # through the replay, whose speeds are one stop
        if page.locator(".token").first.evaluate("token => token === document.activeElement"):
            break
    expect(page.locator(".token").first).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".token").nth(2)).to_be_focused()
    card = page.locator("[data-card]")
    expect(card).to_contain_text("token 3")
    expect(card).to_contain_text("probability")
    expect(card).to_contain_text("61%")
    page.keyboard.press("Tab")
    expect(page.locator(".cell").first).to_be_focused()
    expect(page.locator("#cache [data-readout]")).to_contain_text("block 1: tokens 1 to 16")


def test_screen_reader_hears_start_first_token_and_end(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    fake_engine.pause_s = 0.1
    page = open_page(fake_server)
    page.evaluate(
        """() => {
          window.heard = [];
          const place = document.getElementById("announce");
          new MutationObserver(() => window.heard.push(place.textContent))
            .observe(place, { childList: true, characterData: true, subtree: true });
        }"""
    )
    run(page, "hello there")
    expect(page.locator("#announce")).to_contain_text("The answer: hello there")
    heard = page.evaluate("window.heard")
    assert heard[0] == "Running."
    assert heard[1].startswith("First token after")
    assert len(heard) <= 4, "not every token"


def test_engine_that_starts_late(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    fake_engine.state, fake_engine.info = "starting", None
    page = open_page(fake_server)
    expect(page.locator("#engine")).to_contain_text("is starting")
    expect(page.locator("#go")).to_be_disabled()
    fake_engine.state, fake_engine.info = "ready", INFO
    expect(page.locator("#go")).to_be_enabled(timeout=5_000)
    expect(page.locator("#dtype")).to_contain_text("bfloat16")
    assert run(page, "late") == "done"


def test_bfloat16_can_be_chosen(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    page.get_by_role("radio", name="bfloat16").check(force=True)
    expect(page.locator(".roof")).to_have_attribute("data-dtype", "bfloat16")
    run(page, "b")
    assert fake_engine.requests[-1].weights == "bfloat16"


def test_every_knob_reaches_the_engine(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    page.click("#more")
    for name, value in {
        "temperature": "0.35",
        "max_tokens": "3",
        "top_k": "40",
        "top_p": "0.9",
        "min_p": "0.05",
        "seed": "123",
        "stop_text": "END",
    }.items():
        page.fill(f"#{name}", value)
    run(page, "knobs")
    request = fake_engine.requests[-1]
    assert request.messages is not None
    assert [(turn.role, turn.content) for turn in request.messages] == [("user", "knobs")]
    assert (request.temperature, request.max_tokens, request.top_k) == (0.35, 3, 40)
    assert (request.top_p, request.min_p, request.seed) == (0.9, 0.05, 123)
    assert request.stop == ("END",)
    page.get_by_role("radio", name="a beginning").check(force=True)
    run(page, "knobs")
    assert fake_engine.requests[-1].prompt == "knobs"


def test_wrong_numbers_are_not_sent(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    page.fill("#temperature", "17")
    page.click("#go")
    expect(page.locator("#temperature")).to_have_attribute("aria-invalid", "true")
    assert fake_engine.requests == []
    page.fill("#temperature", "1")
    page.fill("#prompt", "")
    page.click("#go")
    expect(page.locator("#status")).to_have_text("Write a prompt first.")
    assert fake_engine.requests == []


def test_a_lost_connection_is_told_and_nothing_runs_twice(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    fake_engine.endless = True
    fake_engine.pause_s = 0.02
    page = open_page(fake_server, "about:blank")
    sockets = []

    def connect(route) -> None:
        sockets.append((route, route.connect_to_server()))

    page.route_web_socket("**/ws/generate", connect)
    page.goto("/")
    start(page, "abc", tokens=400)
    page.locator(".token").nth(5).wait_for()
    page_side, server_side = sockets[-1]
    page_side.close(code=1012)
    server_side.close()
    assert finish(page) == "failed"
    expect(page.locator("#status")).to_contain_text("The connection was lost")
    until(page, lambda: len(sockets) == 2)
    until(page, lambda: not fake_engine.running)
    page.wait_for_timeout(300)
    assert len(fake_engine.requests) == 1, "a run is never sent again by itself"
    fake_engine.endless = False
    page.click("#again")
    assert finish(page) == "done"
    assert len(fake_engine.requests) == 2


def test_double_clicks_run_once(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    page.fill("#prompt", "twice")
    page.evaluate("() => { for (let i = 0; i < 3; i += 1) document.getElementById('go').click(); }")
    finish(page)
    assert len(fake_engine.requests) == 1


def test_navigating_leaves_one_socket(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server)
    for i in range(50):
        page.goto(f"/?visit={i}")
    live = fake_server.app.state.live
    until(page, lambda: len(live) == 1)
    page.wait_for_timeout(1_500)
    assert len(live) == 1


def test_many_runs_leave_the_page_as_small_as_one(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    fake_engine.pause_s = 0.0
    page = open_page(fake_server)
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable")

    def sizes() -> tuple[float, float]:
        client.send("HeapProfiler.collectGarbage")
        metrics = {m["name"]: m["value"] for m in client.send("Performance.getMetrics")["metrics"]}
        return metrics["Nodes"], metrics["JSHeapUsedSize"]

    page.locator("#steps summary").click()
    page.click("#stage-tokens")
    text = "x" * 700
    for _ in range(2):
        run(page, text, tokens=700)
    nodes, heap = sizes()
    for _ in range(6):
        run(page, text, tokens=700)
    later_nodes, later_heap = sizes()
    assert later_nodes <= nodes * 1.1
    assert later_heap - heap <= 5e6
    assert page.locator(".token").count() == 700
    assert page.locator("#steps tbody tr").count() <= 40
    assert page.locator(".layer-blocks rect").count() <= 600
    assert page.locator(".cell").count() <= 256


@pytest.mark.parametrize("prefix", ["/lab"])
def test_under_a_path(open_page: OpenPage, prefix: str) -> None:
    with running_app(Settings(root_path=prefix), FakeEngine()) as server:
        page = open_page(server, f"{prefix}/")
        assert run(page, "under a path") == "done"
        page.get_by_role("radio", name="bfloat16").check(force=True)
        expect(page.locator(".roof")).to_have_attribute("data-dtype", "bfloat16")
        page.get_by_role("link", name="中文").click()
        expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
        assert page.url == f"{server.url}{prefix}/?lang=zh-Hans"
        # A page that loses its server says so, and one that is closed while it connects, too.
        until(page, lambda: len(server.app.state.live) == 1)
        page.wait_for_load_state("networkidle")
        page.close()


def test_language_and_theme_are_kept(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, color_scheme="light")
    page.get_by_role("link", name="中文").click()
    page.goto("/")
    expect(page.locator("h1")).to_have_text("是开头慢，还是吐字慢？")
    run(page, "你好")
    expect(page.locator("#status")).to_contain_text("完成")
    theme = page.locator("#theme")
    theme.click()
    theme.click()
    expect(theme).to_have_text("主题：深色")
    assert background(page) == "rgb(20, 22, 26)"
    page.reload()
    assert background(page) == "rgb(20, 22, 26)"
    theme.click()
    expect(theme).to_have_text("主题：自动")
    assert background(page) == "rgb(251, 250, 247)"


def background(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("language", ["en", "zh-Hans"])
def test_phone(fake_server: LiveApp, open_page: OpenPage, language: str) -> None:
    page = open_page(
        fake_server, f"/?lang={language}", viewport=PHONE, has_touch=True, is_mobile=True
    )
    page.locator("#more").tap()
    run(page, "a phone in a pocket " * 8, tokens=120)
    for stage in ("tokens", "layers"):
        page.locator(f"#stage-{stage}").tap()
        assert not overflowing(page)
    page.locator("#steps summary").tap()
    assert not overflowing(page)
    sizes = page.locator(".strip-labels span, .strip .axis span").evaluate_all(
        "nodes => nodes.map(node => getComputedStyle(node).fontSize)"
    )
    assert set(sizes) == {"13px"}
    expect(page.locator("svg.roofline.narrow")).to_be_visible()
    expect(page.locator("svg.roofline.wide")).to_be_hidden()
    small = page.locator("button, select, input:not([type=hidden]), summary, .segments span")
    heights = small.evaluate_all(
        """nodes => nodes.filter(node => node.checkVisibility() && node.type !== "radio")
          .map(node => [node.id || node.className, node.getBoundingClientRect().height])
          .filter(([, height]) => height > 0 && height < 44)"""
    )
    assert heights == []
    page.locator(".token").nth(3).tap()
    expect(page.locator("[data-card]")).to_contain_text("61%")


def overflowing(page: Page) -> bool:
    return page.evaluate(
        "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )


def test_without_scripts(fake_server: LiveApp, browser: Browser) -> None:
    context = browser.new_context(base_url=fake_server.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    page.select_option("#e-model", "llama-2-7b")
    page.select_option("#e-hardware", "h100-sxm")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator("#elsewhere-answer")).to_contain_text("TTFT")
    expect(page.locator("#e-model")).to_have_value("llama-2-7b")
    context.close()


def test_elsewhere_follows_the_run(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server)
    run(page, "twelve chars", tokens=8)
    expect(page.locator("#e-prompt")).to_have_value("12")
    expect(page.locator("#e-output")).to_have_value("8")
    answer = page.locator("#elsewhere-answer")
    expect(answer).to_contain_text("predicted")
    before = answer.inner_text()
    page.select_option("#e-hardware", "t4")
    expect(answer).not_to_have_text(before)


def test_too_long_is_told_before_it_is_sent(fake_server: LiveApp, open_page: OpenPage) -> None:
    prompt = "海🌊" * 9_000
    assert len(prompt) < MAX_PROMPT_CHARS
    assert len(prompt.encode()) > MAX_PROMPT_BYTES
    page = open_page(fake_server, "/?lang=zh-Hans")
    page.locator("#prompt").fill(prompt)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#status")).to_contain_text("提示词太长：最多 32,768 个字符")
    expect(page.locator("#prompt")).to_be_focused()
    page = open_page(fake_server, "/learn/kv-cache?lang=zh-Hans")
    page.locator("#cells-prompt").fill(prompt)
    page.locator("#cells-go").click()
    expect(page.locator("#cells [data-problem]")).to_contain_text("提示词太长：最多 32,768 个字符")
    page.locator("#cells-prompt").fill("")
    page.locator("#cells-go").click()
    expect(page.locator("#cells [data-problem]")).to_contain_text("请先写一条提示词")


def test_the_page_knows_the_limits_of_the_server() -> None:
    limits = (STATIC / "js" / "prompt.js").read_text("utf-8")
    for name, limit in (
        ("MAX_PROMPT_CHARS", MAX_PROMPT_CHARS),
        ("MAX_PROMPT_BYTES", MAX_PROMPT_BYTES),
        ("MAX_MESSAGE_BYTES", MAX_MESSAGE_BYTES),
    ):
        assert f"const {name} = {limit};" in limits
