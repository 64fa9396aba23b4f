"""What holds for every page: axe finds nothing, nothing overflows, sliders change the picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import DESKTOP, PHONE, OpenPage
from tests.webapp.live_server import LiveApp

pytestmark = pytest.mark.browser

CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "hidden_act": "silu",
    "architectures": ["LlamaForCausalLM"] * 350,
}  # fmt: skip

PAGES = (
    "/simulator",
    "/simulator?compare=on&model=deepseek-v3&tensor=8&b_model=llama-3.1-70b&b_tensor=4",
    "/simulator?model=own&hardware=own&tensor=3&utilization=80",
    "/simulator?hardware=own&device_memory=80&device_bandwidth=3350&device_bf16=989&tensor=3",
    "/serving?requests=60",
    "/simulator/sweep",
    "/simulator/search?rate=4&devices=2&weights=fp8",
    "/simulator/diagnose?ttft=1200&itl=9",
    "/simulator/deepseek-v4",
    "/simulator/validation",
    "/learn/loop",
    "/learn/tokens",
    "/learn/sampling",
    "/learn/phases",
    "/learn/kv-cache",
    "/learn/serving",
    "/learn/diagnose",
    "/learn/smaller-cache",
    "/learn/quantization",
)
LOOKS = (
    ("light", "en", DESKTOP),
    ("dark", "zh-Hans", DESKTOP),
    ("dark", "en", PHONE),
    ("light", "zh-Hans", {"width": 360, "height": 740}),
)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("theme", "language", "size"), LOOKS)
def test_every_page(
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
    for summary in page.locator("main summary:visible").all():
        summary.click()
    found = Axe().run(page).response["violations"]
    assert [f"{v['id']}: {[n['target'] for n in v['nodes']]}" for v in found] == []
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0
    assert page.locator("html").get_attribute("lang") == language
    assert page.locator("h1").count() == 1


def test_the_context_slider_by_keyboard(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, "/simulator/deepseek-v4")
    slider = page.get_by_label("Context, positions")
    assert slider.get_attribute("aria-valuetext") == "1,048,576"
    slider.focus()
    page.keyboard.press("Home")
    page.get_by_text("beside V3.2 at 1,024 positions").first.wait_for()
    assert slider.get_attribute("aria-valuetext") == "1,024"
    page.get_by_label("once each").check()
    page.get_by_text("Every FLOP counts once").wait_for()


def test_a_slider_moves_its_number_and_the_answer_and_the_address(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/simulator")
    page.get_by_label("Requests together, slider").focus()
    page.keyboard.press("End")
    assert page.get_by_label("Requests together", exact=True).input_value() == "4096"
    page.wait_for_url("**batch=4096**")
    page.get_by_text("It does not fit").wait_for()
    page.get_by_label("Requests together", exact=True).fill("2")
    page.wait_for_url("**batch=2&**")
    assert page.get_by_label("Requests together, slider").input_value() == "1"


def test_a_second_scenario_comes_and_goes_by_keyboard(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/simulator")
    page.get_by_label("Compare with a second one").focus()
    page.keyboard.press("Space")
    page.locator("#b_weights").select_option("int4-g128")
    page.get_by_role("heading", name="B: llama-3.1-8b").wait_for()
    assert page.locator(".line-name", has_text="B: typical").count() > 0
    page.get_by_label("Compare with a second one").uncheck()
    page.get_by_role("heading", name="B: llama-3.1-8b").wait_for(state="detached")


def test_a_higher_load_reaches_the_queue_and_the_knee_follows(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/serving?requests=40&output=30")
    page.locator("#knee .plot").first.wait_for()
    page.get_by_label("Requests a second", exact=True).fill("300")
    page.wait_for_url("**rate=300**")
    page.get_by_role("row", name="in the queue").wait_for()
    page.get_by_text("The same as a list").click()
    assert page.locator(".plain-list li").count() == 40


def test_numbers_open_into_their_formulas(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server, "/simulator")
    page.get_by_text("How each number comes about").click()
    page.get_by_role("row", name="memory.kv_bytes_per_token").wait_for()


def test_a_wrong_field_is_marked_and_said_and_sliders_give_whole_numbers(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/simulator")
    batch = page.get_by_label("Requests together", exact=True)
    slider = page.get_by_label("Requests together, slider")
    slider.focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
        assert batch.input_value().isdigit()
    page.wait_for_url("**batch=3&**")
    notice = page.get_by_text("still those from before")
    assert notice.is_hidden()
    batch.fill("2.5")
    notice.wait_for()
    batch.fill("2")
    notice.wait_for(state="hidden")


def test_measured_times_are_diagnosed_and_the_address_says_them(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/simulator/diagnose")
    page.get_by_text("Give the time to the first token").wait_for()
    page.get_by_label("Time to first token (TTFT), ms").fill("1200")
    page.get_by_role("heading", name="slow to start").wait_for()
    page.wait_for_url("**ttft=1200**")
    assert "itl=" not in page.url
    page.get_by_label("Between tokens (ITL), mean, ms").fill("40")
    page.get_by_role("heading", name="slow to start and to stream").wait_for()
    page.get_by_role("row", name="without the likeliest cause").wait_for()
    page.reload()
    page.get_by_role("heading", name="slow to start and to stream").wait_for()


def test_a_config_is_pasted_or_read_from_a_file_and_a_wrong_one_refused(
    fake_server: LiveApp, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(fake_server, "/simulator")
    page.locator("#model").select_option("own")
    page.get_by_text("model.config: paste its JSON").wait_for()
    field = page.locator("#config")
    field.fill('{"model_type": "llama", "hidden_size": 4096}')
    page.get_by_text("model.config.num_hidden_layers: is missing").wait_for()
    field.fill(json.dumps({**CONFIG, "surprise": 1}))
    page.get_by_text("surprise").first.wait_for()
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG, indent=2))
    assert len(file.read_text()) > 8192
    page.locator("#config-file").set_input_files(file)
    page.get_by_role("heading", name="imported-llama").first.wait_for()
    page.wait_for_url("**config=%7B%22model_type**")
    page.reload()
    page.get_by_role("heading", name="imported-llama").first.wait_for()
    page.locator("#model").select_option("llama-3.1-8b")
    page.get_by_role("heading", name="llama-3.1-8b").first.wait_for()
    assert field.is_hidden()
    assert "config=" not in page.url


def test_a_device_by_its_figures_is_questioned_and_predicted(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/simulator")
    page.locator("#hardware").select_option("own")
    page.locator("#device_memory").fill("80")
    page.locator("#device_bandwidth").fill("3350")
    page.locator("#device_bf16").fill("1978.9")
    page.get_by_text("Is it with sparsity?").wait_for()
    page.get_by_label("The rates are dense, I am sure").first.check()
    page.get_by_text("on own device").first.wait_for()
    page.locator("#tensor").select_option("8")
    page.get_by_text("No link between such devices is known").wait_for()
    page.wait_for_url("**device_bf16=1978.9**")


def test_a_sweep_follows_its_knobs_and_goes_out_as_a_file(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/simulator/sweep")
    page.locator("#x").select_option("prompt_tokens")
    assert page.locator("#x_values").input_value() == "128:32768:x2"
    page.get_by_role("row", name="32,768").wait_for()
    page.locator("#y").select_option("")
    page.locator("#metric").select_option("ttft")
    page.locator("#x_values").fill("100, 1000")
    page.get_by_role("row", name="1,000").wait_for()
    page.wait_for_url("**metric=ttft**")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.path().read_text().count("\n") == 3
    page.locator("#x_values").fill("100, many")
    page.get_by_text("takes whole numbers").wait_for()


def test_a_search_starts_by_itself_and_follows_its_limits(
    fake_server: LiveApp, open_page: OpenPage
) -> None:
    page = open_page(fake_server, "/simulator/search")
    page.get_by_text("deployments keep the limits").wait_for()
    page.get_by_label("ITL at most, ms (mean)").fill("0.01")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("deployments keeps the limits").wait_for()
    page.wait_for_url("**itl=0.01**")


def test_a_trace_is_pasted_or_read_from_a_file(
    fake_server: LiveApp, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(fake_server, "/serving?requests=40&output=30")
    page.get_by_text("Your own requests").click()
    page.locator("#trace").fill("arrival_s,prompt_tokens,output_tokens\n0,100,20\n0.5,300,many\n")
    page.get_by_role("button", name="Serve these requests").click()
    page.get_by_text("line 3, column output_tokens").wait_for()
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,20\n0.5,300,30\n")
    page.locator("#trace-file").set_input_files(file)
    page.locator("#speed").fill("2")
    page.get_by_role("button", name="Serve these requests").click()
    page.get_by_text("2 requests of your trace, 2 times as fast").wait_for()
    page.locator("#trace").fill("x" * 300_000)
    page.get_by_role("button", name="Serve these requests").click()
    page.get_by_text("more than can be sent at once").wait_for()
