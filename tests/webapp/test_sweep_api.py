"""Sweeps over HTTP: the engine's answer, as JSON or CSV, from a thread or a process of its own."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from engine.catalog.inline import hardware_from, model_from
from engine.simulator.search.cell import Cell
from engine.simulator.search.document import (
    estimate_document,
    read_sweep,
    sweep_csv,
    sweep_document,
)
from engine.simulator.search.sweep import run_sweep
from tests.webapp.live_server import LiveApp
from webapp import answers
from webapp.schemas.search import MAX_CELLS, SHORT_CELLS, SweepDocument

PATH = "/api/v1/sweep"
BASE = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "times": "typical"}
SHORT: dict[str, Any] = {"base": BASE, "axes": [{"knob": "batch", "values": [1, 8, 64]}]}
LONG: dict[str, Any] = {
    "base": BASE,
    "axes": [
        {"knob": "batch", "values": list(range(1, 51))},
        {"knob": "prompt_tokens", "values": list(range(1, 51))},
    ],
}


def expected(body: dict[str, Any]) -> Any:
    return json.loads(json.dumps(sweep_document(run_sweep(read_sweep(body)))))


@pytest.mark.parametrize("body", [SHORT, LONG], ids=["thread", "process"])
def test_the_answer_is_the_engines(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.post(PATH, json=body)
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "gzip"
    SweepDocument.model_validate(answer.json())
    assert answer.json() == expected(body)


def test_without_axes_it_is_one_estimate(client: TestClient) -> None:
    document = client.post(PATH, json={"base": BASE, "metrics": ["ttft"]}).json()
    assert document["shape"] == []
    assert len(document["metrics"]["ttft"]["values"]) == 1


@pytest.mark.parametrize("body", [SHORT, LONG], ids=["thread", "process"])
@pytest.mark.parametrize("way", ["accept", "query"])
def test_as_csv(client: TestClient, body: dict[str, Any], way: str) -> None:
    headers = {"accept-encoding": "identity"} | ({"accept": "text/csv"} if way == "accept" else {})
    path = f"{PATH}?format=csv" if way == "query" else PATH
    answer = client.post(path, json=body, headers=headers)
    assert answer.headers["content-type"].startswith("text/csv")
    assert "content-encoding" not in answer.headers
    assert answer.text == "".join(sweep_csv(run_sweep(read_sweep(body))))


def test_one_estimate(client: TestClient) -> None:
    document = client.post("/api/v1/estimate", json={**BASE, "batch": 4}).json()
    swept = client.post(PATH, json={"base": {**BASE, "batch": 4}}).json()["metrics"]
    assert set(document) == set(swept)
    for name, metric in document.items():
        assert metric["value"] == pytest.approx(swept[name]["values"][0], rel=1e-9)
        if swept[name].get("p10") is not None:
            assert metric["p10"] == pytest.approx(metric["value"] * swept[name]["p10"])
            assert metric["p90"] == pytest.approx(metric["value"] * swept[name]["p90"])


CONFIG = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32_000,
    "max_position_embeddings": 2048,
}
DEVICE = {"memory_gb": 80, "bandwidth_gb_s": 3350, "dense_tflops": {"bf16": 989.4}}
IN_PLACE: dict[str, Any] = {
    "model": {"config": CONFIG},
    "hardware": {"custom": DEVICE},
    "times": "typical",
}


def test_what_is_described_in_place_is_estimated_and_swept(client: TestClient) -> None:
    one = client.post("/api/v1/estimate", json=IN_PLACE)
    assert one.status_code == 200, one.text
    cell = Cell(model_from(IN_PLACE["model"]), hardware_from(IN_PLACE["hardware"]), times="typical")
    assert one.json() == json.loads(json.dumps(estimate_document(cell)))
    axes = [
        {"knob": "model", "values": ["llama-3.1-8b", "qwen3-8b"]},
        {"knob": "weights", "values": ["bf16", "fp8"]},
    ]
    for turned in (axes[1:], axes):
        body = {"base": IN_PLACE, "axes": turned}
        answer = client.post(PATH, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json() == expected(body)
        assert answer.json()["base"]["model"] == "imported-llama"
        table = client.post(PATH, json=body, headers={"accept": "text/csv"})
        assert table.text == "".join(sweep_csv(run_sweep(read_sweep(body))))


def test_what_is_described_in_place_is_swept_in_a_process(client: TestClient) -> None:
    body = {**LONG, "base": IN_PLACE}
    assert client.post(PATH, json=body).json() == expected(body)


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("estimate", {"model": {"config": {**CONFIG, "moe_every": 2}}}, "/model/config/moe_every"),
        (
            "estimate",
            {"hardware": {"custom": {**DEVICE, "memory_gb": -1}}},
            "/hardware/custom/memory_gb",
        ),
        ("estimate", {"hardware": {}}, "/hardware/custom"),
        ("estimate", {"model": 7}, "/model"),
        ("sweep", {"model": {"config": {"model_type": "foo"}}}, "/base/model/config/model_type"),
        ("sweep", {"hardware": {"custom": DEVICE, "x": 1}}, "/base/hardware/x"),
    ],
)
def test_what_is_wrong_in_it_is_named_by_its_key(
    client: TestClient, path: str, body: dict[str, Any], pointer: str
) -> None:
    cell = {**IN_PLACE, **body}
    answer = client.post(f"/api/v1/{path}", json={"base": cell} if path == "sweep" else cell)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_long_ones_leave_this_process_alone(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SHORT_CELLS < 50 * 50
    monkeypatch.delattr(answers, "run_sweep")
    assert client.post(PATH, json=LONG).status_code == 200


def with_axis(knob: str, values: list[Any]) -> dict[str, Any]:
    return {"base": BASE, "axes": [{"knob": knob, "values": values}]}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/base"),
        ({"base": {**BASE, "btach": 1}}, "/base/btach"),
        ({"base": {**BASE, "model": "no-such"}}, "/base/model"),
        ({"base": {**BASE, "engine": "no-such"}}, "/base/engine"),
        ({"base": {**BASE, "batch": 0}}, "/base/batch"),
        ({"base": {**BASE, "flops_factor": 0}}, "/base/flops_factor"),
        ({"base": BASE, "metrics": ["speed"]}, "/metrics/0"),
        ({"base": BASE, "axes": [{"values": [1]}]}, "/axes/0/knob"),
        (with_axis("speed", [1]), "/axes/0/knob"),
        (with_axis("batch", []), "/axes/0/values"),
        (with_axis("batch", [1, 0]), "/axes/0/values/1"),
        (with_axis("batch", [1, None]), "/axes/0/values/1"),
        (with_axis("batch", [True]), "/axes/0/values/0"),
        (with_axis("batch", ["x" * 101]), "/axes/0/values/0"),
        (with_axis("batch", [[1]]), "/axes/0/values/0"),
        (with_axis("batch", [1] * 5000), "/axes/0/values"),
        (with_axis("hardware", ["h100-sxm", "no-such"]), "/axes/0/values"),
        ({**LONG, "axes": [*LONG["axes"], {"knob": "kv", "values": ["int3"]}]}, "/axes/2/values"),
    ],
)
def test_wrong_values_are_named(client: TestClient, body: dict[str, Any], pointer: str) -> None:
    answer = client.post(PATH, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_too_many_cells_are_refused_at_once(client: TestClient) -> None:
    axes = [
        {"knob": "batch", "values": [1] * 400},
        {"knob": "prompt_tokens", "values": [1] * (MAX_CELLS // 400 + 1)},
    ]
    answer = client.post(PATH, json={"base": BASE, "axes": axes})
    assert answer.status_code == 422
    assert "100000" in answer.text.replace(",", "")


@pytest.mark.serial
def test_the_largest_sweep_does_not_stall_a_token_stream(server: LiveApp) -> None:
    server.engine.pause_s = 0.005
    server.engine.endless = True
    axes = [
        {"knob": "batch", "values": list(range(1, 401))},
        {"knob": "prompt_tokens", "values": list(range(1, 251))},
    ]
    replies: list[httpx2.Response] = []

    def ask() -> None:
        replies.append(
            httpx2.post(server.url + PATH, json={"base": BASE, "axes": axes}, timeout=60)
        )

    with server.connect() as connection:
        connection.send(json.dumps({"type": "generate", "prompt": "ab", "request_id": "r"}))
        asking = threading.Thread(target=ask)
        asking.start()
        began = time.monotonic()
        last = longest = 0.0
        while asking.is_alive():
            if json.loads(connection.recv(timeout=60))["type"] == "token":
                now = time.monotonic()
                longest = max(longest, now - last) if last else 0.0
                last = now
        took = time.monotonic() - began
        connection.send(json.dumps({"type": "cancel", "request_id": "r"}))
    assert replies[0].status_code == 200
    assert len(replies[0].json()["metrics"]["ttft"]["values"]) == 100_000
    # Were it computed in this process, one gap would be most of the time that it takes.
    assert longest < max(0.5, 0.5 * took)
