"""The catalogue over REST."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from engine.catalog.hardware import published_hardware
from engine.catalog.models import all_models
from engine.catalog.this_machine import Calibration, save_calibration


def test_lists_hold_everything(client: TestClient) -> None:
    models = client.get("/api/v1/models").json()
    assert [entry["id"] for entry in models["models"]] == [spec.id for spec in all_models()]
    assert models["count"] == len(models["models"])
    hardware = client.get("/api/v1/hardware").json()
    ids = [entry["id"] for entry in hardware["hardware"]]
    assert [name for name in ids if name != "this-machine"] == [s.id for s in published_hardware()]
    assert all(entry["source"] for entry in models["models"])
    assert all(entry["sources"] for entry in hardware["hardware"])


@pytest.mark.parametrize(
    ("model", "kv_bytes"),
    [("gpt2", 36864), ("llama-2-7b", 524288), ("smollm2-135m", 23040), ("deepseek-v3", 70272)],
)
def test_kv_bytes(client: TestClient, model: str, kv_bytes: int) -> None:
    assert client.get(f"/api/v1/models/{model}").json()["kv_bytes_per_token"] == kv_bytes


def test_one_device(client: TestClient) -> None:
    device = client.get("/api/v1/hardware/h100-sxm").json()
    assert round(device["ridge_point"]) == 295
    assert device["memory_bytes"] == 80_000_000_000
    assert device["kind"] == "published"


@pytest.mark.parametrize("path", ["models", "hardware"])
@pytest.mark.parametrize("name", ["zqxEchoMarker", "%00", "x" * 3000, "%ED%A0%80", "..%2f"])
def test_unknown_names(client: TestClient, path: str, name: str) -> None:
    answer = client.get(f"/api/v1/{path}/{name}")
    assert answer.status_code == 404
    assert "zqxEchoMarker" not in answer.text
    assert len(answer.content) < 500


@pytest.mark.parametrize("path", ["models", "hardware", "models/gpt2", "hardware/h100-sxm"])
def test_entity_tags(client: TestClient, path: str) -> None:
    first = client.get(f"/api/v1/{path}")
    tag = first.headers["etag"]
    for sent in (tag, f'"other", {tag}', tag.removeprefix("W/"), "*"):
        answer = client.get(f"/api/v1/{path}", headers={"if-none-match": sent})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == tag
    assert client.get(f"/api/v1/{path}", headers={"if-none-match": '"x"'}).status_code == 200


@pytest.mark.usefixtures("state_dir")
def test_this_machine_appears_once_calibrated(client: TestClient) -> None:
    before = client.get("/api/v1/hardware")
    assert client.get("/api/v1/hardware/this-machine").status_code == 404
    save_calibration(
        Calibration(
            bandwidth_bytes_per_s=10e9,
            flops_per_s={"fp32": 1e11},
            memory_bytes=8 * 10**9,
            device_name="a test",
            device_kind="cpu",
            torch_version="0",
            threads=1,
            date="2026-01-01T00:00:00+00:00",
        )
    )
    after = client.get("/api/v1/hardware", headers={"if-none-match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.json()["hardware"][0]["id"] == "this-machine"
    own = client.get("/api/v1/hardware/this-machine").json()
    assert (own["kind"], own["bandwidth"], own["ridge_point_format"]) == ("measured", 10e9, "fp32")
