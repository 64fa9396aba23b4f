"""Text becomes tokens, by keyboard on the real model: tasks, guess, numbers, scripts."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, OpenPage
from tests.webapp.live_server import LiveApp
from webapp.lessons.lesson import SCRIPTS

pytestmark = [pytest.mark.browser, pytest.mark.serial]

PATH = "/learn/tokens"


def done(page: Page, task: str, timeout_s: float = 20) -> None:
    expect(page.locator(f"[data-task={task}]")).to_have_attribute(
        "data-done", "yes", timeout=timeout_s * 1000
    )


def not_done(page: Page, task: str) -> None:
    expect(page.locator(f"[data-task={task}]")).not_to_have_attribute("data-done", "yes")


def test_the_guess_is_computed_after_it_was_made(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, PATH)
    cut = page.get_by_role("button", name="Cut it")
    expect(cut).to_be_disabled()
    page.get_by_label("un · happi · ness").check()
    cut.press("Enter")
    # The first question waits until the vocabularies have been read.
    told = "un · h · appiness. Not as you guessed."
    expect(page.locator("#truth")).to_contain_text(told, timeout=20_000)
    expect(page.locator("label[data-truth=right]")).to_contain_text("un · h · appiness")


def test_a_language_with_the_readers_own_name_is_named_once(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, "/learn/tokens")
    names = page.locator("#languages .language")
    expect(names.nth(0)).to_have_text("English")
    expect(names.nth(1)).to_have_text("Español Spanish")


def test_the_lab_shows_bytes_and_control_tokens(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, PATH)
    text = "héllo\n  世界 🙂"
    tiles = page.locator("#lab-pieces .tile")
    expect(tiles.first).to_be_visible()
    tiles.first.focus()
    not_done(page, "own-text")
    page.get_by_label("Your text", exact=True).fill(text)
    told = httpx2.post(f"{real_server.url}/api/v1/tokenize", json={"text": text}).json()["tokens"]
    expect(tiles).to_have_count(len(told))
    ids = page.locator("#lab-pieces .tile-id").all_inner_texts()
    assert ids == [str(token["id"]) for token in told]
    expect(page.locator("#lab-count")).to_contain_text(f"{len(text)} characters")
    expect(page.locator("#lab-count")).to_contain_text("measured")
    tiles.first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#lab-inspect")).to_contain_text(
        " ".join(told[1]["bytes"][at : at + 2] for at in range(0, len(told[1]["bytes"]), 2))
    )
    done(page, "own-text")
    expect(page.locator("#lab-all tr")).to_have_count(5)

    page.get_by_label("as a chat message").check()
    expect(page.locator("#lab-pieces .tile[data-special]").first).to_contain_text("<|im_start|>")
    page.locator("#lab-tokenizer").select_option("r50k")
    expect(page.locator("#lab-count")).to_contain_text("computed")
    expect(page.get_by_label("as a chat message")).to_be_disabled()


def test_the_articles_ids_stand_beside_the_real_ones(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, PATH)
    wrong = page.locator("#ids-rows tr[data-same=no]")
    expect(wrong).to_have_count(1)
    expect(wrong).to_contain_text("different: 1374 is ·How")
    expect(page.locator("#ids-sum")).to_have_text("1 id of 5 differs.")


def test_merges_are_stepped_by_keyboard(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, PATH)
    slider = page.get_by_role("slider", name="Merge", exact=True)
    expect(page.locator("#merges-parts .tile")).to_have_count(11)
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#merges-line")).to_contain_text("Merge 1 of 8: i and n become in")
    expect(slider).to_have_attribute("aria-valuetext", "Merge 1 of 8: i and n become in · rank 259")
    not_done(page, "replay")
    page.get_by_role("group", name="Merge", exact=True).get_by_role(
        "button", name="Next step"
    ).focus()
    for _ in range(7):
        page.keyboard.press("Space")
    expect(page.locator("#merges-line")).to_contain_text("3 tokens are left")
    expect(page.get_by_role("button", name="Step back").first).to_be_focused()
    assert page.locator("#merges-parts .tile-piece").all_inner_texts() == ["un", "h", "appiness"]
    done(page, "replay")
    page.locator("#merges-tokenizer").select_option("tekken")
    expect(page.locator("#merges-line")).to_contain_text("every byte for itself")


def test_a_text_of_ones_own_is_learned_from(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, PATH, viewport=PHONE)
    page.get_by_label("Text to learn from").fill("low low low lower lowest newest newest")
    page.get_by_role("button", name="Learn").press("Enter")
    line = page.locator("#training-line")
    expect(line).to_have_text("38 characters, each a token of its own")
    slider = page.get_by_role("slider", name="Merge learned")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(line).to_contain_text("l and o stood side by side 5 times")
    assert page.locator("#training-parts .tile[data-made]").all_inner_texts() == ["lo"] * 5
    page.keyboard.press("ArrowRight")
    not_done(page, "train")
    page.keyboard.press("ArrowRight")
    done(page, "train")
    page.keyboard.press("End")
    rows = page.locator("#training-rows tr").count()
    expect(page.locator("#training-rows tr[data-chosen] th")).to_have_text(str(rows))
    page.get_by_label("Text to learn from").fill("abc")
    page.get_by_role("button", name="Learn").press("Enter")
    expect(line).to_contain_text("nothing to learn")


def test_languages_are_counted_predicted_and_measured(
    real_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(real_server, PATH)
    rows = page.locator("#languages-rows tr")
    expect(rows).to_have_count(16)
    expect(rows.last).to_contain_text("×22.7")
    expect(page.locator("#effect-rows tr").first.locator("td.predicted").first).to_contain_text(
        "ms"
    )
    page.locator("#languages-article").select_option("3")
    expect(page.locator("#languages-texts p").first).to_contain_text("right to life")
    page.get_by_role("button", name="Measure here").press("Enter")
    done(page, "languages", 90)
    told = page.locator("#effect-rows tr").first.locator("td")
    assert int(told.nth(3).inner_text()) < 40
    assert "ms" in told.nth(4).inner_text()
    page.locator("#languages-article").select_option("0")
    expect(page.get_by_role("button", name="Measure here")).to_be_disabled()
    expect(rows.last).to_contain_text("×22.5")


@pytest.mark.parametrize("script", ["tokens.sh", "tokens.py"])
def test_its_scripts_run(real_server: LiveApp, script: str) -> None:
    command = [sys.executable] if script.endswith(".py") else ["sh", "-e"]
    ran = subprocess.run(
        [*command, str(SCRIPTS / script)],
        env={**os.environ, "SERVICE": real_server.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "appiness" in ran.stdout
    if script.endswith(".py"):
        assert ran.stdout.startswith("[2437, 857, 32278, 670, 30]")
        assert "9 l o" in ran.stdout
