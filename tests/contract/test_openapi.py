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
from webapp.schemas.probes import PROBES
from webapp.schemas.serve import ServingDocument
from webapp.schemas.simulate import SimulationDocument
from webapp.settings import Settings

# Room for every job that a well-formed question may start here: full queues are tried elsewhere.
app = create_app(Settings(jobs_kept=1024, simulation_queue=1024), FakeEngine())
schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers={"host": "localhost"})
schema.config.generation.modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
# A body may be too large before anyone looks whether it is well-formed.
schema.config.checks.negative_data_rejection.expected_statuses.append("413")
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
    "/api/v1/estimate",
    "/api/v1/sweep",
    "/api/v1/search",
    "/api/v1/diagnose",
    "/api/v1/runs",
    "/api/v1/export",
    "/api/v1/runs/{run_id}",
    "/api/v1/runs/{run_id}/export",
    "/api/v1/claims",
    "/api/v1/words/near",
    "/api/v1/words/map",
    "/api/v1/claims/{claim_id}",
    "/api/v1/tokenize",
    "/api/v1/detokenize",
    "/api/v1/tokenizers",
    *(f"/api/v1/tokenizers/{name}" for name in ("languages", "compare", "train")),
    "/api/v1/tokenizers/{tokenizer}/encode",
    "/api/v1/tokenizers/{tokenizer}/merges",
    *(f"/api/v1/probes/{kind}" for kind in PROBES),
    "/v1/models",
    "/v1/models/{model}",
    "/v1/completions",
    "/v1/chat/completions",
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
    for path, operations in document["paths"].items():
        shape = "application/json" if path.startswith("/v1/") else MEDIA_TYPE
        for operation in operations.values():
            assert operation["description"]
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and int(status) != 503:
                    assert list(answer["content"]) == [shape]


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
shares = st.floats(0, 1, allow_nan=False)
rates = st.floats(0.1, 1000)
features = {
    "data": st.sampled_from([1, 2, 8]),
    "stages": st.sampled_from([1, 2, 4]),
    "experts": st.booleans(),
    "imbalance": st.floats(1, 3),
    "per_node": st.none() | st.sampled_from([1, 8]),
    "network_gb_s": st.none() | rates,
    "engine": st.none() | st.sampled_from(["trtllm", "llama.cpp-cuda", "abacus"]),
    "memory_utilization": st.floats(0.1, 1),
    "chunk_tokens": st.none() | st.sampled_from([1, 512]),
    "prefix_hit_rate": shares,
    "speculation": st.none()
    | st.fixed_dictionaries(
        {"drafts": st.integers(1, 8), "acceptance": shares},
        optional={"draft_model": st.none() | st.just("smollm2-135m"), "draft_fraction": shares},
    ),
    "offload": st.none() | st.fixed_dictionaries({"link_gb_s": rates}),
    "disaggregation": st.none()
    | st.fixed_dictionaries({}, optional={"devices": st.just(2), "link_gb_s": rates}),
    "usd_per_hour": st.none() | rates,
    "idle_share": shares,
}


@given(body=st.fixed_dictionaries(known, optional=features))
@hypothesis.settings(max_examples=150, deadline=None, derandomize=True)
def test_every_model_on_every_device(client: TestClient, body: dict[str, object]) -> None:
    answer = client.post("/api/v1/simulate", json=body)
    assert answer.status_code in (200, 422)
    if answer.status_code == 200:
        SimulationDocument.model_validate(answer.json())
    else:
        assert answer.json()["code"] in ("invalid_request", "unknown_name")


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


def test_features_and_layouts_give_the_same_document_as_the_command(client: TestClient) -> None:
    options = (
        "--model deepseek-v3 --hardware h200-sxm --devices 2 --data 4 --stages 2 --experts "
        "--imbalance 1.2 --per-node 8 --network-gb-s 25 --engine trtllm --memory-utilization 0.8 "
        "--weights fp8 --batch 9 --prompt-tokens 900 --output-tokens 20 --chunk-tokens 256 "
        "--prefix-hit-rate 0.5 --drafts 2 --acceptance 0.8 --draft-fraction 0.1 "
        "--offload-gb-s 50 --prefill-devices 4 --transfer-gb-s 30 --usd-per-hour 3 "
        "--idle-share 0.1"
    )
    ran = CliRunner().invoke(engine_command, ["simulate", *options.split(), "--json"])
    assert ran.exit_code == 0, ran.output
    printed = json.loads(ran.stdout)
    answer = client.post("/api/v1/simulate", json=printed["scenario"])
    assert answer.status_code == 200
    assert answer.json() == printed
    SimulationDocument.model_validate(printed)


def test_a_model_and_a_device_of_ones_own(client: TestClient) -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "tie_word_embeddings": False,
        "max_position_embeddings": 131_072,
    }
    custom = {
        "name": "Mine",
        "memory_gb": 80,
        "bandwidth_gb_s": 3350,
        "dense_tflops": {"bf16": 989},
    }
    body = {"model": {"config": config}, "hardware": {"custom": custom}, "output_tokens": 4}
    own = client.post("/api/v1/simulate", json=body)
    assert own.status_code == 200, own.json()
    known = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "output_tokens": 4}
    same = client.post("/api/v1/simulate", json=known).json()
    assert own.json()["memory"]["weights"]["value"] == same["memory"]["weights"]["value"]
    assert own.json()["ttft"]["value"] == pytest.approx(same["ttft"]["value"], rel=1e-3)
    again = client.post("/api/v1/simulate", json=own.json()["scenario"])
    assert again.json() == own.json()
    wrong = client.post(
        "/api/v1/simulate", json={**body, "model": {"config": {**config, "hidden_size": "big"}}}
    )
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["pointer"] == "/model/config/hidden_size"
