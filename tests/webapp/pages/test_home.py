"""``GET /`` and its fragments, without a browser."""

from __future__ import annotations

import hashlib
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl

import pytest
from fastapi.testclient import TestClient

from engine.catalog.this_machine import Calibration, save_calibration
from engine.catalog.units import time_label
from engine.simulator.scenario import Scenario, simulate
from tests.webapp.fake_engine import INFO, QUANTIZED, SMOLLM2, FakeEngine
from webapp.app import create_app
from webapp.pages.elsewhere import ratio_words
from webapp.pages.suggestions import SUGGESTIONS
from webapp.rendering import ROOT
from webapp.settings import Settings

STATIC = ROOT / "static"
TEMPLATES = ROOT / "templates"


def attribute(page: str, name: str) -> str:
    found = re.search(rf'{name}="([^"]*)"', page)
    assert found, f"no attribute {name}"
    return html.unescape(found[1])


def calibrate(device_name: str = INFO.device_name) -> None:
    save_calibration(
        Calibration(
            bandwidth_bytes_per_s=20e9,
            flops_per_s={"fp32": 400e9},
            memory_bytes=8 * 10**9,
            device_name=device_name,
            device_kind="cpu",
            torch_version="0",
            threads=1,
            date="2026-01-01T00:00:00+00:00",
        )
    )


def test_engine_facts_reach_the_scripts(client: TestClient) -> None:
    facts = json.loads(attribute(client.get("/").text, "data-engine"))
    assert facts["layers"] == INFO.model["num_layers"]
    assert facts["vocabulary"] == INFO.model["vocab_size"]
    assert [lane["dtype"] for lane in facts["lanes"]] == ["float32", "bfloat16"]
    assert facts["random_weights"] is True


def test_random_weights_are_labelled(client: TestClient, engine: FakeEngine) -> None:
    assert "random weights" in client.get("/").text
    engine.info = replace(INFO, random_weights=False)
    assert "random weights" not in client.get("/").text


def test_the_running_model_is_known_by_its_sizes(client: TestClient, engine: FakeEngine) -> None:
    facts = json.loads(attribute(client.get("/").text, "data-engine"))
    assert facts["catalogue_model"] is None
    assert [lane["number_format"] for lane in facts["lanes"]] == ["fp32", "bf16"]
    engine.info = SMOLLM2
    facts = json.loads(attribute(client.get("/").text, "data-engine"))
    assert facts["catalogue_model"] == "smollm2-135m"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("starting", "is starting"),
        ("restarting", "starting again"),
        ("unresponsive", "does not answer"),
        ("stopped", "is off"),
    ],
)
def test_states_of_the_engine(
    client: TestClient, engine: FakeEngine, state: str, words: str
) -> None:
    engine.state, engine.info = state, None
    page = client.get("/").text
    assert words in page
    assert 'data-ready="no"' in page
    assert attribute(page, "data-engine") == "null"


def test_only_dtypes_on_offer_can_be_chosen(client: TestClient, engine: FakeEngine) -> None:
    engine.info = replace(INFO, lanes=INFO.lanes[:1])
    fragment = client.get("/fragments/dtype?dtype=bfloat16").text
    assert re.findall(r'value="(\w+)"( checked)?', fragment) == [("float32", " checked")]
    engine.info = INFO
    fragment = client.get("/fragments/dtype?dtype=bfloat16").text
    assert ("bfloat16", " checked") in re.findall(r'value="(\w+)"( checked)?', fragment)


@pytest.mark.usefixtures("state_dir")
@pytest.mark.parametrize("measured", [False, True])
def test_an_engine_with_quantised_weights_alone(measured: bool) -> None:
    if measured:
        calibrate()
    app = create_app(Settings(), FakeEngine(info=QUANTIZED))
    with TestClient(app, base_url="http://localhost") as client:
        for path in ("/", "/fragments/roofline", "/fragments/dtype", "/fragments/engine"):
            assert client.get(path).status_code == 200
        fragment = client.get("/fragments/dtype?dtype=bfloat16").text
        assert re.findall(r'value="(\w+)"( checked)?', fragment) == [("auto", " checked")]
        roof = client.get("/fragments/roofline").text
        assert attribute(roof, "data-dtype") == "float32"
        assert ("data-peak" in roof) is measured


def test_a_lane_that_a_request_had_opened_is_no_precision_to_choose(
    client: TestClient, engine: FakeEngine
) -> None:
    opened = [
        replace(INFO.lanes[1], on_demand=True),
        replace(INFO.lanes[0], name="float32/off", kv_cache="off"),
        replace(INFO.lanes[0], name="float32/paged+prefix", prefix_cache=True),
    ]
    engine.info = replace(INFO, lanes=(INFO.lanes[0], *opened))
    fragment = client.get("/fragments/dtype").text
    assert re.findall(r'value="(\w+)"( checked)?', fragment) == [("float32", " checked")]


def test_engine_fragment_is_silent_while_nothing_changes(
    client: TestClient, engine: FakeEngine
) -> None:
    url = html.unescape(attribute(client.get("/fragments/engine").text, "hx-get"))
    assert client.get(url).status_code == 204
    engine.restarts += 1
    assert client.get(url).status_code == 200


def test_prompts_to_pick_are_escaped_and_exact(client: TestClient) -> None:
    page = client.get("/").text
    prompts = [html.unescape(text) for text in re.findall(r'data-prompt="([^"]*)"', page)]
    assert prompts == [suggestion.prompt for suggestion in SUGGESTIONS]


@pytest.mark.usefixtures("state_dir")
class TestRoofline:
    def test_no_calibration_no_roof_but_the_command(self, client: TestClient) -> None:
        page = client.get("/fragments/roofline").text
        assert "python -m engine calibrate" in page
        assert "roof-line" not in page
        assert "data-peak" not in page

    def test_calibrated(self) -> None:
        calibrate()
        with TestClient(
            create_app(Settings(), FakeEngine()), base_url="http://localhost"
        ) as client:
            page = client.get("/fragments/roofline?dtype=float32").text
            assert attribute(page, "data-bandwidth") == "20000000000.0"
            assert attribute(page, "data-peak") == "400000000000.0"
            assert "20.0 GB/s" in page
            assert "400 GFLOP/s" in page
            assert page.count("<title") == page.count("<desc") == 2
            other = client.get("/fragments/roofline?dtype=bfloat16").text
            assert "data-peak" not in other, "this dtype was not measured"

    def test_a_calibration_of_another_device_is_not_shown(self) -> None:
        calibrate("another cpu")
        with TestClient(
            create_app(Settings(), FakeEngine()), base_url="http://localhost"
        ) as client:
            assert "data-peak" not in client.get("/fragments/roofline?dtype=float32").text


@pytest.mark.usefixtures("state_dir")
class TestElsewhere:
    ASKED = "model=llama-2-7b&hardware=h100-sxm&weights=bf16&prompt_tokens=300&output_tokens=50"

    def test_is_what_the_simulator_says(self, client: TestClient) -> None:
        report = simulate(Scenario("llama-2-7b", "h100-sxm", prompt_tokens=300, output_tokens=50))
        fragment = client.get(f"/fragments/elsewhere?{self.ASKED}").text
        assert time_label(report.ttft) in fragment
        assert report.itl is not None
        assert time_label(report.itl) in fragment
        assert fragment.count("· predicted") == 2
        assert "It fits" in fragment

    def test_fits_is_said_of_the_part_that_may_be_filled(self, client: TestClient) -> None:
        """13.5 GB of weights and the cache are within 16 GB, beyond nine tenths of them."""
        asked = "model=llama-2-7b&hardware=v100-pcie-16&weights=bf16&prompt_tokens=2500"
        report = simulate(Scenario("llama-2-7b", "v100-pcie-16", prompt_tokens=2500))
        assert report.memory.fits
        assert not report.capacity.fits
        assert "It does not fit" in client.get(f"/fragments/elsewhere?{asked}").text

    def test_works_as_a_plain_form(self, client: TestClient) -> None:
        fragment = client.get(f"/fragments/elsewhere?{self.ASKED}").text
        page = client.get(f"/?{self.ASKED}").text
        assert re.findall(r"[\d.]+ [mµ]s", fragment)[0] in page
        assert '<option value="llama-2-7b" selected>' in page
        assert '<option value="h100-sxm" selected>' in page
        assert 'value="300"' in page

    HERE: ClassVar[dict[str, str]] = {
        "here_model": "llama-2-7b",
        "here_weights": "bf16",
        "here_prompt_tokens": "300",
        "here_output_tokens": "50",
    }

    def beside(self, client: TestClient, ttft: float, itl: float, **other: str) -> str:
        """The fragment where that many times the prediction was measured here."""
        report = simulate(Scenario("llama-2-7b", "h100-sxm", prompt_tokens=300, output_tokens=50))
        assert report.itl is not None
        measured = {
            "here_ttft_ms": str(report.ttft * 1e3 * ttft),
            "here_itl_ms": str(report.itl * 1e3 * itl),
        }
        query = dict(parse_qsl(self.ASKED))
        answer = client.get(
            "/fragments/elsewhere", params={**query, **self.HERE, **measured, **other}
        )
        return " ".join(answer.text.split())

    def test_stands_beside_what_was_measured_here(self, client: TestClient) -> None:
        fragment = self.beside(client, ttft=25, itl=0.0623)
        assert "Here it was measured at 25.0 times that." in fragment
        assert "Here it was measured at 1/16 of that." in fragment

    @pytest.mark.parametrize(
        "other",
        [{"here_model": "gpt2"}, {"here_weights": "fp32"}, {"here_prompt_tokens": "299"},
         {"here_model": ""}, {"here_prompt_tokens": "?"}],
    )  # fmt: skip
    def test_other_work_is_not_compared(self, client: TestClient, other: dict[str, str]) -> None:
        fragment = self.beside(client, 25, 25, **other)
        assert "· predicted" in fragment
        assert "Here it was measured" not in fragment

    def test_an_answer_of_another_length_compares_the_first_token_only(
        self, client: TestClient
    ) -> None:
        fragment = self.beside(client, 25, 25, here_output_tokens="51")
        assert fragment.count("Here it was measured") == 1

    @pytest.mark.parametrize(
        ("ratio", "words"),
        [(25, "25.0"), (0.998, "1.00"), (0.8, "80%"), (0.0623, "1/16"), (0.004, "1/250"),
         (0.0003, "1/3,300")],
    )  # fmt: skip
    def test_ratios_in_words(self, ratio: float, words: str) -> None:
        assert ratio_words(ratio) == (words, ratio > 0.99)

    def test_more_positions_than_the_model_has_are_told(self, client: TestClient) -> None:
        asked = "/fragments/elsewhere?model=gpt2&hardware=h100-sxm&output_tokens=25&prompt_tokens="
        assert "cannot do this" not in client.get(f"{asked}1000").text
        beyond = client.get(f"{asked}2000").text
        assert "2,024 positions, more than its context of 1,024" in beyond
        chinese = client.get(f"{asked}2000&lang=zh-Hans").text
        assert "超出了它 1,024 的上下文长度" in chinese

    def test_this_machine_has_a_name_in_both_languages(self, client: TestClient) -> None:
        calibrate("AMD (R) EPYC")
        assert ">This machine (AMD (R) EPYC)</option>" in client.get("/?lang=en").text
        chinese = client.get("/?lang=zh-Hans").text
        assert ">本机（AMD (R) EPYC）</option>" in chinese
        assert "This machine" not in chinese

    def test_too_large_says_so(self, client: TestClient) -> None:
        asked = "model=llama-3.1-405b&hardware=t4&weights=bf16"
        fragment = client.get(f"/fragments/elsewhere?{asked}").text
        assert "It does not fit" in fragment

    def test_every_model_is_offered_and_answered(self, client: TestClient) -> None:
        answer = client.get("/fragments/elsewhere?model=mixtral-8x7b&hardware=h100-sxm")
        assert answer.status_code == 200
        assert "· predicted" in answer.text
        page = client.get("/").text
        for model in ("mixtral-8x7b", "deepseek-v4-pro", "nemotron-3-nano-30b-a3b"):
            assert f'value="{model}"' in page

    @pytest.mark.parametrize(
        "query",
        [
            "model=<script>alert(1)</script>&hardware=h100-sxm",
            "model=llama-2-7b&hardware=nothing",
            "model=&hardware=",
            "hardware=h100-sxm&prompt_tokens=-5&output_tokens=1e999",
            "hardware=h100-sxm&prompt_tokens=99999999999999999999999999&output_tokens=0",
            "hardware=h100-sxm&prompt_tokens=%F0%9F%A6%8A&output_tokens=%00",
            "hardware=h100-sxm&weights=fp1&here_ttft_ms=nan&here_itl_ms=-inf",
            "hardware=h100-sxm&prompt_tokens=²",
        ],
    )
    def test_nonsense_is_answered_and_not_repeated(self, client: TestClient, query: str) -> None:
        for path in ("/", "/fragments/elsewhere"):
            answer = client.get(f"{path}?{query}")
            assert answer.status_code == 200
            assert "<script>alert" not in answer.text
            assert "nan" not in re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan", "", answer.text.lower())


def test_every_link_stands_under_the_root_path() -> None:
    app = create_app(Settings(root_path="/lab"), FakeEngine())
    with TestClient(app, base_url="http://localhost") as client:
        page = client.get("/lab/").text
        found = re.findall(r'(?:href|src|action|hx-get|data-socket)="([^"]*)"', page)
        assert len(found) > 10
        for link in found:
            assert link.startswith(("/lab/", "#", "?")), link
        for path in (link for link in found if "/static/" in link):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]


def test_vendored_files_are_what_they_were() -> None:
    folder = STATIC / "vendor" / "htmx"
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert (folder / "LICENSE").read_text().strip()


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=lambda path: path.name)
def test_templates_hold_nothing_inline(path: Path) -> None:
    source = path.read_text("utf-8")
    assert not re.search(r"\sstyle=|\son\w+=|hx-on|javascript:|<style|hx-vals=.js", source)
    assert not re.search(r"<script(?![^>]*\bsrc=)", source)
    assert not re.search(r"\|\s*safe\b|autoescape\s+false", source)
    unquoted = re.search(r"\s[\w-]+=(?![\"'{ =]|$)[^\s>\"']*\{\{", source)
    assert not unquoted, "attributes are always quoted"


def test_htmx_is_tied_down(client: TestClient) -> None:
    found = re.search(r"<meta name=\"htmx-config\" content='([^']*)'", client.get("/").text)
    assert found
    assert json.loads(found[1]) == {
        "allowEval": False,
        "allowScriptTags": False,
        "selfRequestsOnly": True,
        "includeIndicatorStyles": False,
        "historyCacheSize": 0,
    }


def test_text_of_models_and_prompts_never_becomes_markup() -> None:
    """Scripts write text with textContent only; what shows a model's text is closed to htmx."""
    for path in (STATIC / "js").rglob("*.js"):
        source = path.read_text("utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source
        )
    home = (TEMPLATES / "pages" / "home.html").read_text("utf-8")
    assert '<div class="side-text" hx-disable>' in home
    assert '<ol class="stages" hx-disable>' in (TEMPLATES / "fragments" / "way.html").read_text()
