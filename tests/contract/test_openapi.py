"""The API keeps to its own description, whatever is sent."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from typer.testing import CliRunner

from engine.__main__ import app as engine_command
from engine.catalog.hardware import published_hardware
from engine.catalog.models import all_models
from engine.catalog.precision import FORMATS
from tests.webapp.fake_engine import FakeEngine
from webapp.app import create_app
from webapp.problems import MAX_BYTES, MEDIA_TYPE
from webapp.schemas.serve import ServingDocument
from webapp.schemas.simulate import SimulationDocument
from webapp.settings import Settings

app = create_app(Settings(), FakeEngine())
schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers={"host": "localhost"})
schema.config.generation.modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
# The names that exist are tried below; here most are made up, and unknown.
schema.config.generation.allow_x00 = True

EXPECTED_PATHS = {
    "/healthz",
    "/readyz",
    "/api/v1/engine",
    "/api/v1/models",
    "/api/v1/models/{model_id}",
    "/api/v1/models/import",
    "/api/v1/hardware",
    "/api/v1/hardware/{hardware_id}",
    "/api/v1/simulate",
    "/api/v1/serve",
    "/api/v1/jobs/{job_id}",
}


@schema.parametrize()
@hypothesis.settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_keeps_to_its_description(case: Any) -> None:
    # Names and numbers may be well-formed and yet not go together, or not exist.
    answer = case.call_and_validate(
        headers={"host": "localhost"}, excluded_checks=[positive_data_acceptance]
    )
    assert answer.status_code < 500
    if answer.status_code >= 400 and case.method != "HEAD":
        assert len(answer.content) <= MAX_BYTES


@pytest.fixture(scope="module")
def client() -> Any:
    with TestClient(app, base_url="http://localhost") as test_client:
        yield test_client


def test_describes_what_there_is(client: TestClient) -> None:
    document = client.get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == EXPECTED_PATHS
    text = str(document)
    assert "HTTPValidationError" not in text
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["description"]
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and int(status) != 503:
                    assert list(answer["content"]) == [MEDIA_TYPE]


known = {
    "model": st.sampled_from([spec.id for spec in all_models()]),
    "hardware": st.sampled_from([spec.id for spec in published_hardware()]),
    "devices": st.sampled_from([1, 2, 3, 8]),
    "weights": st.sampled_from(sorted(FORMATS)),
    "kv": st.sampled_from(sorted(FORMATS)),
    "activations": st.none() | st.sampled_from(sorted(FORMATS)),
    "batch": st.integers(1, 8),
    "prompt_tokens": st.integers(1, 5000),
    "output_tokens": st.integers(1, 16),
}


@given(body=st.fixed_dictionaries(known))
@hypothesis.settings(max_examples=150, deadline=None, derandomize=True)
def test_every_model_on_every_device(client: TestClient, body: dict[str, object]) -> None:
    answer = client.post("/api/v1/simulate", json=body)
    assert answer.status_code in (200, 422)
    if answer.status_code == 200:
        SimulationDocument.model_validate(answer.json())
    else:
        assert answer.json()["code"] == "invalid_request"


def test_a_service_has_the_same_document_as_the_command(client: TestClient) -> None:
    names = ["--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--rate", "20", "--cv", "2"]
    rest = ["--requests", "30", "--prompt", "uniform:10:900", "--output", "lognormal:20:1:99"]
    more = ["--slo-ttft", "0.1", "--max-running", "8", "--no-chunked-prefill", "--seed", "3"]
    ran = CliRunner().invoke(engine_command, ["serve", *names, *rest, *more, "--json"])
    body = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "workload": {
            "kind": "drawn",
            "requests": 30,
            "arrivals": {"kind": "gamma", "rate": 20, "cv": 2},
            "prompts": {"kind": "uniform", "low": 10, "high": 900},
            "outputs": {"kind": "lognormal", "mean": 20, "cv": 1, "most": 99},
        },
        "engine": {"max_running": 8, "chunked_prefill": False},
        "slo": {"ttft_s": 0.1},
        "seed": 3,
    }
    answer = client.post("/api/v1/serve", json=body)
    assert answer.status_code == 200, answer.json()
    ServingDocument.model_validate(answer.json())
    assert answer.json() == json.loads(ran.stdout)


def test_same_document_as_the_command(client: TestClient) -> None:
    names = ["--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--batch", "3"]
    rest = ["--prompt-tokens", "100", "--output-tokens", "7", "--weights", "int4-g128"]
    ran = CliRunner().invoke(engine_command, ["simulate", *names, *rest, "--json"])
    printed = json.loads(ran.stdout)
    body = {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "batch": 3,
        "prompt_tokens": 100,
        "output_tokens": 7,
        "weights": "int4-g128",
    }
    assert client.post("/api/v1/simulate", json=body).json() == printed
