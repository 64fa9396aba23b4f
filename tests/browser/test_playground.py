"""Runs kept, shared, replayed, compared and exported, by keyboard where a person would use one."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import DESKTOP, PHONE, OpenPage, run
from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp, running_app
from webapp.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("state_dir")]


def saved_link(page: Page, title: str = "", by: str = "") -> str:
    """Saves the run on the page by keyboard; the link that it gets."""
    page.locator("#keep-title-field").focus()
    page.keyboard.type(title)
    page.keyboard.press("Tab")
    page.keyboard.type(by)
    page.keyboard.press("Enter")
    link = page.locator("#keep-link")
    expect(link).to_be_focused()
    expect(page.locator("#keep [data-told]")).to_have_text("Saved. This is its link.")
    return link.input_value()


def test_a_run_is_saved_opened_by_its_link_and_deleted(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    expect(page.locator("#keep")).to_be_hidden()
    run(page, "kept for later", tokens=8)
    link = saved_link(page, "<b>My</b> run", "Ada")
    assert link.startswith(f"{fake_server.url}/runs/")

    other = open_page(fake_server, link)
    expect(other.locator("h1")).to_have_text("<b>My</b> run")
    expect(other.get_by_text("Saved run, as reported by its browser")).to_be_visible()
    for text in ("Ada", "fake cpu", "kept for later", "random weights"):
        expect(other.locator(".run-head")).to_contain_text(text)
    expect(other.locator("#run")).to_have_attribute("data-state", "done")
    assert other.locator(".token").all_text_contents() == list("kept for")
    for place in ("#ttft .big", "#itl .big", "#strip [data-decode]", "#cache [data-count]"):
        expect(other.locator(place)).to_have_text(page.locator(place).text_content() or "")
    expect(other.locator("#delete")).to_be_hidden()  # its token is in the other browser

    page.locator("#keep").get_by_role("button", name="Delete it").press("Enter")
    expect(page.locator("#keep [data-told]")).to_contain_text("It was deleted.")


def test_whoever_saved_a_run_can_delete_it_from_its_page(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    run(page, "mine", tokens=4)
    page.goto(saved_link(page))
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url(f"{fake_server.url}/")
    assert run(page, "more", tokens=2) == "done"


def test_a_saved_run_is_run_again_with_its_settings_and_compared(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    page.fill("#temperature", "0.35")
    run(page, "once more", tokens=7)
    page.goto(saved_link(page))
    page.get_by_role("button", name="Run it again here").press("Enter")
    page.wait_for_url(f"{fake_server.url}/")
    expect(page.locator("#status")).to_contain_text("settings of the saved run")
    expect(page.locator("#prompt")).to_have_value("once more")
    expect(page.locator("#temperature")).to_have_value("0.35")
    expect(page.locator("#seed")).to_have_value("7")
    page.fill("#temperature", "0.9")
    run(page)
    assert fake_engine.requests[-1].max_tokens == 7
    page.locator("#before summary").press("Enter")
    before = page.locator("#before")
    expect(before).to_contain_text("Both answers are the same, token for token.")
    expect(before.get_by_role("row", name="Temperature")).to_contain_text("0.35")


def test_two_runs_after_each_other_are_compared_without_saving(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    run(page, "the cat sat", tokens=11)
    expect(page.locator("#before")).to_be_hidden()
    run(page, "the dog sat", tokens=11)
    page.locator("#before summary").click()
    before = page.locator("#before")
    expect(before).to_contain_text("They part at token 5: A goes on with c, B with d.")
    assert before.locator("mark").all_text_contents() == list("ca") + ["t"][:1] + list("dog")
    expect(before.locator(".first").first).to_have_text("c")
    expect(before.get_by_role("row", name="Prompt").last).to_contain_text("the dog sat")
    assert before.locator(".compare-strip .block").count() == 22
    run(page, "the dog sat", tokens=11)
    expect(before).to_contain_text("Both answers are the same")


def test_two_links_are_compared_on_a_page_of_their_own(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    run(page, "one", tokens=3)
    link = saved_link(page)
    page.goto("/runs/example")
    page.get_by_label("Compare with").fill(link)
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?a=example&b=*")
    rows = page.locator(".compare-table tbody tr")
    expect(rows.first).to_contain_text("measured")
    expect(page.get_by_role("row", name="Machine")).to_contain_text("fake cpu")
    page.get_by_label("B", exact=True).fill("no-such-run")
    page.keyboard.press("Enter")
    expect(page.locator("#about-b")).to_have_text("There is no such run, or no more.")
    expect(page.locator("#comparison")).to_have_count(0)


def at(page: Page) -> float:
    return float(page.locator("#replay [data-time]").input_value())


def test_a_replay_steps_by_keyboard_and_ends_as_the_run_ended(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server)
    run(page, "abcdef", tokens=6)
    slider = page.locator("#replay [data-time]")
    end = at(page)
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".token")).to_have_count(5)
    expect(page.locator("#status")).to_contain_text("Done")  # the real run's own end
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".token")).to_have_count(4)
    assert 0 < at(page) < end
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#run")).to_have_attribute("data-state", "done")
    expect(page.locator(".token")).to_have_count(6)
    assert at(page) == end
    expect(page.locator("#go")).to_be_visible()
    assert run(page, "xy", tokens=2) == "done"
    expect(page.locator(".token")).to_have_count(2)


def test_a_replay_can_begin_before_anything_happened(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/runs/example")
    expect(page.locator("#run")).to_have_attribute("data-state", "done")
    page.locator("#replay [data-time]").focus()
    page.keyboard.press("Home")
    expect(page.locator(".token")).to_have_count(0)
    assert at(page) == 0
    with page.expect_download():  # a picture of nothing is one, too
        page.get_by_role("button", name="SVG").click()
    page.get_by_role("button", name="One event forth").click()
    assert at(page) > 0
    page.locator("#replay [data-time]").focus()
    page.keyboard.press("End")
    expect(page.locator("#run")).to_have_attribute("data-state", "done")


def test_a_document_becomes_a_run_and_the_same_document_again(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/runs/example")
    expect(page.locator("#run")).to_have_attribute("data-state", "done")
    first, again = page.evaluate(
        """async () => {
            const { documentOf, runOf } = await import("/static/js/playground/saved.js");
            const answer = await fetch("/api/v1/runs/example");
            const document = (await answer.json()).run;
            const at = document.events.findIndex((event) => event.type === "token");
            document.events.splice(at, 0, {
                type: "drafted", draft_token_ids: [1], draft_pieces: ["a"], accepted: 0, sample: 0,
            });
            const run = runOf(structuredClone(document));
            return [document, documentOf(run, { title: document.title })];
        }"""
    )
    assert again == first


def test_a_replay_keeps_to_the_recorded_times(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, "/runs/example")
    expect(page.locator("#run")).to_have_attribute("data-state", "done")
    end = at(page)
    tokens = page.locator(".token").count()
    page.locator("#replay [data-time]").focus()
    page.evaluate(
        """() => {
            const slider = document.querySelector("#replay [data-time]");
            window.seen = [];
            const look = (now) => {
                window.seen.push([now, Number(slider.value),
                    document.querySelectorAll(".token").length]);
                if (window.seen.length < 2000) requestAnimationFrame(look);
            };
            requestAnimationFrame(look);
        }"""
    )
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    expect(page.locator(".token")).to_have_count(tokens)
    seen = page.evaluate("window.seen")
    # What is seen in a frame was put there in the frame before.
    moved = [(before[0], now[1]) for before, now in pairwise(seen) if 0 < before[1] <= now[1] < end]
    assert moved
    (first, here), (last, there) = moved[0], moved[-1]
    assert there - here == pytest.approx(last - first, abs=2), "a second is a second"
    page.get_by_role("radio", name="× ¼").check(force=True)
    page.get_by_role("button", name="Play").click()
    page.wait_for_timeout(200)
    page.locator("#replay [data-time]").focus()
    page.keyboard.press(" ")
    assert 0 < at(page) < 200


def exported(page: Page, button: str, folder: Path) -> bytes:
    with page.expect_download() as waiting:
        page.locator("#keep").get_by_role("button", name=button, exact=True).press("Enter")
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path.read_bytes()


@pytest.mark.parametrize("path", ["/", "/runs/example"])
def test_exports(fake_server: LiveApp, open_page: OpenPage, tmp_path: Path, path: str) -> None:
    page = open_page(fake_server, path)
    if path == "/":
        run(page, "exported", tokens=8)
    expect(page.locator("#run")).to_have_attribute("data-state", "done")
    tokens = page.locator(".token").count()
    document: dict[str, Any] = json.loads(exported(page, "JSON", tmp_path))
    assert [e["type"] for e in document["events"]].count("token") == tokens
    steps = exported(page, "CSV of the steps", tmp_path).decode().splitlines()
    assert len(steps) == tokens + 1
    assert len(exported(page, "CSV of the tokens", tmp_path).decode().splitlines()) > tokens
    trace = json.loads(exported(page, "trace for Perfetto", tmp_path))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {"prefill", "decode"} <= {event["name"] for event in slices}
    drawn = exported(page, "SVG", tmp_path).decode()
    assert drawn.startswith("<svg")
    assert "measured" in drawn
    assert "style=" not in drawn
    assert "class=" not in drawn
    assert exported(page, "PNG", tmp_path).startswith(b"\x89PNG")


def test_a_recorded_run_is_there_before_the_engine_is(
    fake_server: LiveApp, fake_engine: FakeEngine, open_page: OpenPage
) -> None:
    fake_engine.state, fake_engine.info = "starting", None
    page = open_page(fake_server)
    page.get_by_role("link", name="Meanwhile, watch a recorded run").click()
    expect(page.get_by_text("A recorded run that comes with the program")).to_be_visible()
    expect(page.locator("#run")).to_have_attribute("data-state", "done")
    page.locator("#replay").get_by_role("button", name="Play").press("Enter")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_what_the_server_refuses_to_keep_is_told(browser: Browser) -> None:
    context = browser.new_context(locale="en-GB")  # a refusal is logged by the browser
    with running_app(Settings(run_saves_per_hour=1), FakeEngine()) as server:
        page = context.new_page()
        page.goto(server.url)
        run(page, "a", tokens=1)
        saved_link(page)
        run(page, "b", tokens=1)
        page.locator("#keep").get_by_role("button", name="Save").click()
        expect(page.locator("#keep [data-told]")).to_contain_text("Many runs were saved")
        expect(page.locator("#keep [data-save]")).to_be_visible()
    context.close()


@pytest.mark.parametrize("path", ["/runs/example", "/compare", "/compare?a=example&b=example"])
@pytest.mark.parametrize(
    ("theme", "language", "size"),
    [("light", "en", DESKTOP), ("dark", "zh-Hans", {"width": 360, "height": 740}),
     ("dark", "en", PHONE)],
)  # fmt: skip
def test_no_barrier_and_no_overflow(
    fake_server: LiveApp,
    open_page: OpenPage,
    path: str,
    theme: str,
    language: str,
    size: dict[str, int],
) -> None:
    page = open_page(
        fake_server,
        f"{path}{'&' if '?' in path else '?'}lang={language}",
        color_scheme=theme,
        viewport=size,
        bypass_csp=True,  # axe is injected as an inline script
    )
    if path != "/compare":
        page.locator("#run[data-state=done], .compare-table").first.wait_for()
    found = Axe().run(page).response["violations"]
    assert [f"{v['id']}: {[n['target'] for n in v['nodes']]}" for v in found] == []
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0
