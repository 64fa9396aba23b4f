"""Pages of saved runs: what they say, what they escape, and links that lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live_server import LiveApp, running_app
from tests.webapp.saved_run import recorded_run
from webapp.pages.playground_texts import PLAYGROUND_TEXTS
from webapp.pages.run_view import asked_id
from webapp.pages.script_texts import SCRIPT_TEXTS
from webapp.rendering import ROOT
from webapp.settings import Settings

HTML = {"accept": "text/html"}
PAYLOAD = "<script>alert(1)</script><img src=x onerror=alert(1)>\"' {{7*7}}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRSTTOKEN_STATE", str(tmp_path_factory.mktemp("state")))
        with running_app(Settings(), FakeEngine()) as app:
            yield app


@pytest.fixture(scope="module")
def http(server: LiveApp) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=20, headers=HTML) as client:
        yield client


def save(server: LiveApp, http: httpx2.Client, **changes: Any) -> str:
    run = recorded_run(server) | changes
    answer = http.post("/api/v1/runs", json=run)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def test_a_page_says_who_what_when_and_where(server: LiveApp, http: httpx2.Client) -> None:
    run_id = save(server, http)
    page = http.get(f"/runs/{run_id}").text
    assert "Saved run, as reported by its browser" in page
    for text in ("A title", "Ada", "fake cpu", "abcdef", "Sep 21, 2026", "random weights"):
        assert text in page
    assert "Roofline of fake cpu in float32, as it was measured there" in page
    assert "memory 30.0 GB/s" in page
    chinese = http.get(f"/runs/{run_id}", params={"lang": "zh-Hans"})
    assert "数据由当时的浏览器上报" in chinese.text
    assert "2026年9月21日" in chinese.text
    assert chinese.headers["cache-control"] == "no-store"
    assert chinese.headers["x-robots-tag"] == "noindex"


def test_a_run_on_a_machine_without_a_calibration(server: LiveApp, http: httpx2.Client) -> None:
    page = http.get(f"/runs/{save(server, http, roof=None)}", params={"lang": "en"}).text
    assert "had not been measured when this ran" in page
    assert "python -m engine calibrate" not in page


def test_a_run_that_was_cut_off_says_so(server: LiveApp, http: httpx2.Client) -> None:
    run = recorded_run(server)
    error = {"type": "error", "code": "engine_restarted", "message": "", "field": None}
    events = [*run["events"][:-1], error | {"reason": None, "values": {}}]
    cut = http.get(f"/runs/{save(server, http, events=events)}?lang=en").text
    assert "This run was interrupted." in cut
    assert "This run was interrupted." not in http.get("/runs/example?lang=en").text


def test_texts_of_people_stay_text(server: LiveApp, http: httpx2.Client) -> None:
    run = recorded_run(server, prompt=PAYLOAD)
    machine = run["machine"] | {"device_name": PAYLOAD, "model_name": PAYLOAD}
    run_id = save(server, http, title=PAYLOAD, by=PAYLOAD[:60], machine=machine)
    for path in (f"/runs/{run_id}", f"/compare?a={run_id}&b=example"):
        page = http.get(path).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;alert(1)" in page


def test_the_latest_and_the_earliest_moment_can_be_shown(
    server: LiveApp, http: httpx2.Client
) -> None:
    for moment in (0, 4_102_444_799_999):
        run_id = save(server, http, ran_at_ms=moment)
        assert http.get(f"/runs/{run_id}").status_code == 200


@pytest.mark.parametrize(
    "run_id", ["nothing-here", "x" * 33, "a.b", "%00", "..%2f..", "exam%0aple"]
)
def test_links_that_lead_nowhere(http: httpx2.Client, run_id: str) -> None:
    answer = http.get(f"/runs/{run_id}")
    assert answer.status_code == 404
    assert "<h1>" in answer.text
    page = http.get(f"/compare?a={run_id}&b=example&lang=en")
    assert page.status_code == 200
    assert "There is no such run, or no more." in page.text
    assert 'id="comparison"' not in page.text


@pytest.mark.parametrize(
    ("typed", "run_id"),
    [
        ("abc_-9", "abc_-9"),
        (" https://lab.example.org/lab/runs/abc ", "abc"),
        ("https://lab.example.org/runs/abc/?lang=zh#strip", "abc"),
        ("/runs/abc", "abc"),
        ("", ""),
        ("///", ""),
    ],
)
def test_a_link_or_an_id_can_be_typed(typed: str, run_id: str) -> None:
    assert asked_id(typed) == run_id


def test_scripts_use_the_texts_that_there_are() -> None:
    folder = ROOT / "static" / "js"
    scripts = [folder / "home.js", *(folder / "playground").glob("*.js")]
    script = "".join(path.read_text("utf-8") for path in scripts)
    quoted = set(re.findall(r'"([a-z]+\.[\w.]+)"', script))
    used = set(re.findall(r'\bt\(\s*"([^"]+)"', script))
    assert used <= SCRIPT_TEXTS.keys() | PLAYGROUND_TEXTS.keys()
    assert {key for key in PLAYGROUND_TEXTS if not key.startswith("kind.")} <= quoted
    assert not SCRIPT_TEXTS.keys() & PLAYGROUND_TEXTS.keys()


def test_an_empty_comparison_says_where_runs_come_from(http: httpx2.Client) -> None:
    page = http.get("/compare?lang=en").text
    assert 'href="/compare?a=example"' in page
    begun = http.get("/compare?a=example&lang=en")
    assert begun.status_code == 200
    assert 'href="/runs/example"' in begun.text
