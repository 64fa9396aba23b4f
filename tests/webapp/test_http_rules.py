"""What holds for every answer over HTTP: headers, hosts, bodies, small errors, caching."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engine.errors import (
    EngineError,
    EngineUnavailable,
    InvalidRequest,
    NeverFits,
    QueueFull,
    StepFailed,
    UnknownName,
)
from tests.webapp.fake_engine import FakeEngine
from webapp.app import create_app
from webapp.errors import engine_problem
from webapp.problems import MAX_BYTES, MEDIA_TYPE, FieldError, ProblemResponse
from webapp.settings import Settings

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'; report-uri /csp-report; report-to csp"
)


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    (tmp_path / "a.js").write_text("export const a = 1;\n" * 200)
    app = create_app(Settings(static_dir=tmp_path), FakeEngine())

    def explode(secret: str = "") -> None:
        raise RuntimeError(f"boom {secret}")

    app.add_api_route("/api/v1/explode", explode)
    return app


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app, base_url="http://localhost")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/", 200),
        ("GET", "/static/a.js", 200),
        ("GET", "/nothing", 404),
        ("GET", "/static/nothing.js", 404),
        ("DELETE", "/healthz", 405),
        ("POST", "/api/v1/models", 405),
        ("POST", "/api/v1/simulate", 415),
        ("GET", "/api/v1/explode", 500),
        ("GET", "/docs", 404),
        ("GET", "/redoc", 404),
        ("GET", "/openapi.json", 404),
    ],
)
def test_every_answer_has_the_headers(
    client: TestClient, method: str, path: str, status: int
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-security-policy"] == CSP
    assert answer.headers["reporting-endpoints"] == 'csp="/csp-report"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert "camera=()" in answer.headers["permissions-policy"]
    assert "server" not in answer.headers


def test_unexpected_failure_is_small_and_silent(
    client: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = client.get("/api/v1/explode", params={"secret": "zqxEchoMarker"})
    assert answer.status_code == 500
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.json()["code"] == "internal_error"
    assert "boom" not in answer.text
    assert "zqxEchoMarker" not in answer.text


def test_other_hosts_are_refused(client: TestClient) -> None:
    answer = client.get("/healthz", headers={"host": "evil.example"})
    assert answer.status_code == 400
    assert answer.json()["code"] == "host_not_allowed"
    assert "evil" not in answer.text


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:81"])
def test_other_sites_may_not_call_unsafe_methods(client: TestClient, origin: str) -> None:
    answer = client.post("/api/v1/simulate", json={}, headers={"origin": origin})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_preflight_gets_no_permission(client: TestClient) -> None:
    answer = client.options(
        "/api/v1/simulate",
        headers={
            "origin": "https://evil.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type",
        },
    )
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "media_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/json; charset=utf-16",
        "application/xml",
    ],
)
def test_only_json_is_taken(client: TestClient, media_type: str | None) -> None:
    headers = {} if media_type is None else {"content-type": media_type}
    answer = client.post("/api/v1/simulate", content=b"{}", headers=headers)
    assert answer.status_code == 415
    assert answer.headers["content-type"] == MEDIA_TYPE


def test_body_limit(client: TestClient) -> None:
    limit = Settings().max_body_bytes
    headers = {"content-type": "application/json"}
    at_limit = b'"' + b"x" * (limit - 2) + b'"'
    answer = client.post("/api/v1/simulate", content=at_limit, headers=headers)
    assert answer.status_code == 422
    answer = client.post("/api/v1/simulate", content=at_limit + b" ", headers=headers)
    assert answer.status_code == 413
    assert answer.json()["code"] == "body_too_large"


def test_problem_documents_are_small_whatever_happened() -> None:
    many = [FieldError("/" + "p" * 5000, "c" * 500, "\x00ü\ud800" * 3000) for _ in range(500)]
    response = ProblemResponse(422, "validation_failed", "d" * 10_000, many)
    assert len(response.body) <= MAX_BYTES
    bytes(response.body).decode("utf-8")


def test_static_files_are_kept_by_version(client: TestClient) -> None:
    versioned = client.get("/static/a.js?v=abc")
    assert versioned.headers["cache-control"] == "public, max-age=31536000, immutable"
    plain = client.get("/static/a.js")
    assert plain.headers["cache-control"] == "no-cache"
    again = client.get("/static/a.js", headers={"if-none-match": plain.headers["etag"]})
    assert again.status_code == 304
    missing = client.get("/static/missing.js?v=abc")
    assert missing.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/static/../webapp/app.py", "/static/%2e%2e/webapp/app.py", "/static//etc/passwd"]
)
def test_static_files_stay_inside(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_text_is_compressed(client: TestClient) -> None:
    answer = client.get("/static/a.js", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in answer.headers["vary"]
    raw = client.get("/static/a.js", headers={"accept-encoding": "identity"})
    assert len(gzip.compress(raw.content)) < len(raw.content)


def test_api_answers_are_not_stored(client: TestClient) -> None:
    assert client.get("/api/v1/engine").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("error", "status", "pointer"),
    [
        (QueueFull("later"), 503, None),
        (EngineUnavailable("starting"), 503, None),
        (NeverFits("too long", field="prompt"), 422, "/prompt"),
        (UnknownName("no such", field="model"), 422, "/model"),
        (InvalidRequest("wrong", field="<b>"), 422, ""),
        (StepFailed("secret detail"), 500, None),
    ],
)
def test_errors_of_the_engine(error: EngineError, status: int, pointer: str | None) -> None:
    response = engine_problem(error).response()
    document = json.loads(bytes(response.body))
    assert (response.status_code, document["code"]) == (status, error.code)
    assert ("retry-after" in response.headers) == (status == 503)
    pointers = [entry["pointer"] for entry in document.get("errors", [])]
    assert pointers == ([] if pointer is None else [pointer])
    assert "secret" not in document["detail"]
