"""``/api/v1/runs``: saving, reading, deleting, exporting, and what is no run."""

from __future__ import annotations

import asyncio
import copy
import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.hostile import MARKER
from tests.webapp.live_server import LiveApp, running_app
from tests.webapp.saved_run import Document, recorded_run
from webapp.problems import MAX_BYTES
from webapp.settings import Settings
from webapp.store.records import Receipt
from webapp.store.saved_runs import MAX_ADDRESSES, SavedRuns, SavingRate


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApp]:
    """One server for all tests of this module, with a state folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRSTTOKEN_STATE", str(tmp_path_factory.mktemp("state")))
        with running_app(Settings(), FakeEngine()) as app:
            yield app


@pytest.fixture(scope="module")
def recorded(server: LiveApp) -> Document:
    return recorded_run(server)


@pytest.fixture
def run(recorded: Document) -> Document:
    return copy.deepcopy(recorded)


@pytest.fixture
def http(server: LiveApp) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{server.url}/api/v1", timeout=20) as client:
        yield client


def test_a_run_is_saved_read_and_deleted(http: httpx2.Client, run: Document) -> None:
    saved = http.post("/runs", json=run)
    assert saved.status_code == 201, saved.text
    receipt = saved.json()
    place = f"/runs/{receipt['id']}"
    assert saved.headers["location"] == f"/api/v1{place}"
    assert receipt["path"] == place

    told = http.get(place)
    assert told.headers["cache-control"] == "no-store"
    document = told.json()
    assert (document["created"], document["expires"]) == (receipt["created"], receipt["expires"])
    assert document["run"]["events"] == run["events"]
    assert document["run"]["request"]["prompt"] == "abcdef"
    assert receipt["delete_token"] not in told.text

    assert http.delete(place).status_code == 422
    wrong = http.delete(place, headers={"x-delete-token": "x" * 43})
    assert (wrong.status_code, wrong.json()["code"]) == (403, "wrong_delete_token")
    right = {"x-delete-token": receipt["delete_token"]}
    assert http.delete(place, headers=right).status_code == 204
    assert http.get(place).status_code == 404
    assert http.delete(place, headers=right).status_code == 404


def test_a_restart_keeps_runs(run: Document, http: httpx2.Client) -> None:
    place = f"/api/v1/runs/{http.post('/runs', json=run).json()['id']}"
    with running_app(Settings(), FakeEngine()) as again:
        kept = httpx2.get(again.url + place).json()
    assert kept["run"]["events"] == run["events"]


def test_the_example_is_a_run_that_was_recorded(http: httpx2.Client) -> None:
    document = http.get("/runs/example").json()
    assert document["expires"] is None
    example = document["run"]
    assert example["machine"]["device_name"]
    assert not example["machine"]["random_weights"]
    assert http.post("/export", params={"format": "json"}, json=example).status_code == 200
    token = {"x-delete-token": "x" * 43}
    assert http.delete("/runs/example", headers=token).status_code == 404


def test_quotas(state_dir: Path, run: Document) -> None:
    settings = Settings(run_saves_per_hour=2, run_max_bytes=100_000)
    with running_app(settings, FakeEngine()) as small:
        place = f"{small.url}/api/v1/runs"
        assert [httpx2.post(place, json=run).status_code for _ in range(3)] == [201, 201, 429]
        assert httpx2.post(place, json=run).headers["retry-after"]
        large = httpx2.post(place, content=b" " * 100_001)
        assert large.status_code == 413
        other = httpx2.post(f"{small.url}/api/v1/simulate", content=b" " * 300_000)
        assert other.status_code == 413
    with running_app(Settings(runs_total_bytes=1024), FakeEngine()) as full:
        place = f"{full.url}/api/v1/runs"
        answers = [httpx2.post(place, json=run) for _ in range(3)]
        assert answers[-1].status_code == 507
        assert answers[-1].json()["code"] == "store_full"


def test_without_its_database_the_rest_goes_on(tmp_path: Path, run: Document) -> None:
    nowhere = f"sqlite+aiosqlite:///{tmp_path}/no/such/folder/runs.sqlite3"
    with running_app(Settings(database_url=nowhere), FakeEngine()) as app:
        answers = [
            httpx2.post(f"{app.url}/api/v1/runs", json=run),
            httpx2.get(f"{app.url}/api/v1/runs/anything"),
            httpx2.get(f"{app.url}/runs/anything"),
        ]
        assert [answer.status_code for answer in answers] == [503] * 3
        assert {answer.json()["code"] for answer in answers} == {"store_unavailable"}
        assert str(tmp_path) not in answers[0].text
        assert httpx2.get(f"{app.url}/api/v1/runs/example").status_code == 200
        assert httpx2.get(app.url).status_code == 200


def test_under_a_prefix(state_dir: Path, run: Document) -> None:
    run["events"][-1]["text"] = "long " * 100_000
    with running_app(Settings(root_path="/lab"), FakeEngine()) as app:
        saved = httpx2.post(f"{app.url}/lab/api/v1/runs", json=run)
        run_id = saved.json()["id"]
        assert saved.json()["path"] == f"/lab/runs/{run_id}"
        assert saved.headers["location"] == f"/lab/api/v1/runs/{run_id}"
        page = httpx2.get(f"{app.url}/lab/runs/{run_id}").text
        assert 'action="/lab/compare"' in page
        assert 'data-home="/lab/"' in page


async def saved_by_hand(document: bytes) -> Receipt:
    runs = SavedRuns(Settings())
    try:
        return await runs.save(document)
    finally:
        await runs.close()


def test_a_run_of_another_version_is_not_shown_and_breaks_nothing(state_dir: Path) -> None:
    with running_app(Settings(), FakeEngine()) as app:
        saved = asyncio.run(saved_by_hand(b'{"version": 99}'))
        place = f"{app.url}/api/v1/runs/{saved.id}"
        assert httpx2.get(place).json()["run"] == {"version": 99}
        assert httpx2.get(f"{place}/export?format=trace").status_code == 404
        page = httpx2.get(f"{app.url}/runs/{saved.id}", headers={"accept": "text/html"})
        assert page.status_code == 404


def test_a_larger_body_than_elsewhere_is_read(http: httpx2.Client, run: Document) -> None:
    run["events"][-1]["text"] = "long " * 100_000
    assert http.post("/runs", json=run).status_code == 201


def test_addresses_have_rates_of_their_own_and_are_forgotten() -> None:
    rate = SavingRate(1)
    assert [rate.take("a"), rate.take("a"), rate.take("b")] == [True, False, True]
    for number in range(MAX_ADDRESSES):
        rate.take(str(number))
    assert rate.take("a")


def spoil(change: Callable[[Document], object]) -> Callable[[Document], Document]:
    def spoiled(run: Document) -> Document:
        run = copy.deepcopy(run)
        change(run)
        return run

    return spoiled


def events_of(run: Document, kind: str) -> list[Document]:
    return [event for event in run["events"] if event["type"] == kind]


def swap(run: Document) -> None:
    steps = events_of(run, "step")
    steps[0]["start_ms"], steps[1]["start_ms"] = steps[1]["start_ms"] + 5, steps[0]["start_ms"]


HOSTILE: dict[str, Callable[[Document], object]] = {
    "no events": lambda run: run["events"].clear(),
    "no end": lambda run: run["events"].pop(),
    "no beginning": lambda run: run["events"].pop(0),
    "two ends": lambda run: run["events"].append(run["events"][-1]),
    "hello": lambda run: run["events"].insert(1, {"type": "hello"}),
    "unknown event": lambda run: run["events"].insert(1, {"type": MARKER}),
    "unknown field": lambda run: run["events"][1].update({f"<b>{MARKER}": 1}),
    "number in quotes": lambda run: events_of(run, "step")[0].update(time_ms="1.5"),
    "text for a piece": lambda run: events_of(run, "token")[0].update(piece=7),
    "true for a number": lambda run: events_of(run, "step")[0].update(batch=True),
    "negative time": lambda run: events_of(run, "step")[0].update(time_ms=-1.0),
    "endless time": lambda run: events_of(run, "token")[0].update(time_ms=1e18),
    "negative stage": lambda run: events_of(run, "step")[0]["stages_ms"].update(
        {f"<b>{MARKER}": -1.0}
    ),
    "certain beyond one": lambda run: events_of(run, "token")[0].update(logprob=50.0),
    "huge list of gaps": lambda run: run["events"][-1].update(itl_ms=[1e300]),
    "steps out of order": swap,
    "a token missing": lambda run: run["events"].remove(events_of(run, "token")[2]),
    "a token twice": lambda run: run["events"].insert(-1, events_of(run, "token")[2]),
    "ids without pieces": lambda run: run["events"][0]["prompt_pieces"].pop(),
    "no tokens told": lambda run: run["events"][0].update(prompt_tokens=10**12),
    "another version": lambda run: run.update(version=2),
    "title too long": lambda run: run.update(title=MARKER * 100),
    "NUL in the name": lambda run: run.update(by="\x00" + MARKER),
    "two samples": lambda run: run["request"].update(n=2),
    "prompt and messages": lambda run: run["request"].update(
        messages=[{"role": "user", "content": MARKER}]
    ),
    "no layers": lambda run: run["machine"].update(layers=0),
    "roof without numbers": lambda run: run.update(roof={"dtype": "float32"}),
    "roof at zero": lambda run: run["roof"].update(peak=0),
    "further field": lambda run: run.update({f"<b>{MARKER}": "x"}),
    "too many events": lambda run: run["events"].extend([{"type": "queued"}] * 40_001),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_run_is_refused(http: httpx2.Client, run: Document, name: str) -> None:
    spoiled = spoil(HOSTILE[name])(run)
    for path in ("/runs", "/export?format=trace"):
        answer = http.post(path, json=spoiled)
        assert answer.status_code == 422, answer.text
        assert len(answer.content) <= MAX_BYTES
        assert MARKER not in answer.text
        pointer = answer.json()["errors"][0]["pointer"]
        assert not any(f"/{tag}" in pointer for tag in ("step", "token", "accepted"))


def test_the_place_of_a_wrong_field_is_told(http: httpx2.Client, run: Document) -> None:
    at = run["events"].index(events_of(run, "step")[1])
    run["events"][at]["batch"] = "two"
    errors = http.post("/runs", json=run).json()["errors"]
    assert [error["pointer"] for error in errors] == [f"/events/{at}/batch"]


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b'{"version": 1e999}', b"[" * 5000])
def test_what_is_not_json_is_refused(http: httpx2.Client, body: bytes) -> None:
    answer = http.post("/runs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    as_text = http.post("/runs", content=b"{}", headers={"content-type": "text/plain"})
    assert as_text.status_code == 415


@pytest.mark.parametrize("run_id", ["x" * 33, "a.b", "%00", "..%2f..", "a b"])
def test_ids_that_no_run_has(http: httpx2.Client, run_id: str) -> None:
    assert http.get(f"/runs/{run_id}").status_code in (404, 422)


@pytest.mark.parametrize("saved", [True, False])
def test_csv_of_steps_and_tokens(http: httpx2.Client, run: Document, saved: bool) -> None:
    events_of(run, "token")[1].update(piece="=1+1", text='say "a", b\nc')

    def table(form: str) -> list[dict[str, str]]:
        if saved:
            run_id = http.post("/runs", json=run).json()["id"]
            answer = http.get(f"/runs/{run_id}/export", params={"format": form})
        else:
            answer = http.post("/export", params={"format": form}, json=run)
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert "attachment" in answer.headers["content-disposition"]
        return list(csv.DictReader(io.StringIO(answer.text, newline="")))

    steps, tokens = table("steps.csv"), table("tokens.csv")
    assert [float(row["time_ms"]) for row in steps] == [
        step["time_ms"] for step in events_of(run, "step")
    ]
    assert [row["phase"] for row in steps] == ["prefill"] + ["decode"] * 5
    assert steps[0]["predicted_ms"] == ""
    assert [int(row["id"]) for row in tokens] == [token["id"] for token in events_of(run, "token")]
    assert tokens[0]["itl_ms"] == ""
    assert tokens[1]["piece"] == "'=1+1", "a spreadsheet must not compute it"
    assert tokens[1]["text"] == 'say "a", b\nc'


def test_the_document_comes_back_as_it_was(http: httpx2.Client, run: Document) -> None:
    told = http.post("/export", params={"format": "json"}, json=run)
    assert json.loads(told.content)["events"] == run["events"]
    assert http.post("/runs", json=json.loads(told.content)).status_code == 201
    assert http.post("/export", params={"format": "png"}, json=run).status_code == 422


def test_the_trace_has_every_step_and_token_on_its_track(
    http: httpx2.Client, run: Document
) -> None:
    for step in events_of(run, "step"):
        step["predicted_ms"] = 0.5
    trace = http.post("/export", params={"format": "trace"}, json=run).json()
    events = trace["traceEvents"]
    tracks = {
        event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"
    }

    def on(track: str) -> list[dict[str, Any]]:
        return [event for event in events if event.get("tid") == tracks[track]][1:]

    steps = on("steps, measured")
    assert [(event["name"], event["ts"], event["dur"]) for event in steps] == [
        (step["phase"], step["start_ms"] * 1e3, step["time_ms"] * 1e3)
        for step in events_of(run, "step")
    ]
    assert steps[0]["args"]["layers_ms"] == 0.8
    predicted = on("steps, predicted")
    assert [event["dur"] for event in predicted] == [500.0] * 6
    assert [event["ts"] for event in predicted] == [500.0 * i for i in range(6)]
    assert len(on("tokens")) == 6
    assert [event["name"] for event in on("request")] == ["tokenize", "prefill", "decode"]
    counters = [event for event in events if event["ph"] == "C"]
    assert [event["args"] for event in counters if event["name"].startswith("KV")] == [
        {"this request": 1, "others": 0}
    ] * 6
    for event in events:
        assert event["ph"] in "MXiC"
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
