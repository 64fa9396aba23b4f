"""Quantization by keyboard on the real model: the guess, each task, the scripts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, OpenPage
from tests.webapp.live_server import LiveApp
from webapp.lessons.lesson import SCRIPTS
from webapp.rendering import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.serial]

SLOW_MS = 60_000


def done(page: Page, task: str) -> None:
    expect(page.locator(f"[data-task={task}]")).to_have_attribute(
        "data-done", "yes", timeout=SLOW_MS
    )


def test_a_row_and_then_whole_models(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/quantization")
    facts = page.locator(".row-facts")
    expect(facts).to_contain_text("bits a weight")
    page.locator("#row-shared").select_option("tensor")
    expect(facts).to_contain_text("331,776")
    page.locator("#row-shared").select_option("g32")
    expect(facts).to_contain_text("5.00 bits a weight")
    done(page, "scales")
    expect(page.locator(".row-picture circle.after")).to_have_count(64)
    page.locator("#row-number").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator('output[for="row-number"]')).to_have_text("8")
    # The file's own blocks are what they are: nothing moves.
    page.locator("#row-bits").select_option("file")
    expect(facts).to_contain_text("by 0% of its size")

    page.evaluate("document.getElementById('variants').dataset.tokens = '12'")  # quicker
    page.locator("#form-b").select_option("bfloat16")
    page.locator("#form-c").select_option("int4-tensor-rtn")
    page.get_by_role("button", name="Run all three").focus()
    page.keyboard.press("Enter")
    done(page, "weights")
    broken = page.locator(".variant[data-form=int4-tensor-rtn]")
    expect(broken).to_contain_text("differs from A's")
    assert broken.locator(".kl[data-same=no]").count() > 10
    sizes = page.locator(".variants-sizes tbody tr")
    assert "16.0 bits" in sizes.nth(1).inner_text()


def test_the_guess_is_measured(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/quantization")
    page.get_by_label("Less than half the time: the text falls apart").check()
    page.get_by_role("button", name="Measure it on the prompt below").focus()
    page.keyboard.press("Enter")
    truth = page.locator("#truth")
    expect(truth).to_contain_text("Measured over", timeout=SLOW_MS)
    expect(truth).to_contain_text("As you guessed.")


def test_sizes_and_times_turn_with_their_knobs(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/quantization", viewport=PHONE)
    expect(page.locator("#sizes-answer")).to_contain_text("6.74")
    page.locator("#sizes-model").select_option("llama-2-13b")
    expect(page.locator("#sizes-answer")).to_contain_text("13.02")
    done(page, "sizes")
    rows = page.locator("#speed tbody tr")
    expect(rows).to_have_count(4)
    before = rows.first.inner_text()
    page.locator("#speed-prompt").focus()
    page.keyboard.press("End")
    expect(rows.first).not_to_have_text(before)
    done(page, "halves")


@pytest.mark.parametrize("command", [["sh"], [sys.executable]])
def test_its_scripts_run(real_server: LiveApp, command: list[str]) -> None:
    ending = "sh" if command == ["sh"] else "py"
    ran = subprocess.run(
        [*command, str(SCRIPTS / f"quantization.{ending}")],
        env={**os.environ, "SERVICE": real_server.url},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "bits" in ran.stdout


def test_no_label_of_the_bits_is_cut_on_a_phone(real_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(real_server, "/learn/quantization", viewport=PHONE)
    for shared in ("channel", "g32"):
        page.locator("#row-shared").select_option(shared)
        page.locator(".row-bits .own-bits").wait_for()
        cut = page.evaluate(
            "[...document.querySelectorAll('.row-bits span')]"
            ".filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.textContent)"
        )
        assert cut == []
