"""Reports of refused content are counted, never repeated."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from webapp.api.csp_report import LOG_EVERY_S, CspReports


def count(client: TestClient) -> dict[str, int]:
    return client.app.state.csp_reports.by_directive  # pyright: ignore


@pytest.mark.parametrize(
    ("media_type", "document"),
    [
        ("application/csp-report", {"csp-report": {"effective-directive": "script-src-elem"}}),
        ("application/csp-report", {"csp-report": {"violated-directive": "script-src-elem"}}),
        (
            "application/reports+json",
            [{"type": "csp-violation", "body": {"effectiveDirective": "script-src-elem"}}],
        ),
    ],
)
def test_counts(client: TestClient, media_type: str, document: object) -> None:
    # Browsers send reports from sandboxed pages with the origin null.
    answer = client.post(
        "/csp-report",
        content=json.dumps(document),
        headers={"content-type": media_type, "origin": "null"},
    )
    assert (answer.status_code, answer.content) == (204, b"")
    assert count(client) == {"script-src-elem": 1}


def test_content_is_not_repeated(client: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    report = {"effective-directive": "<script>zqxEchoMarker", "blocked-uri": "zqxEchoMarker"}
    answer = client.post("/csp-report", json={"csp-report": report})
    assert answer.status_code == 204
    assert count(client) == {"unknown": 1}
    assert "zqxEchoMarker" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [
        (b"{", "application/csp-report", 400),
        (b"{}", "text/plain", 415),
        (b'"' + b"x" * 20_000 + b'"', "application/csp-report", 413),
        (b"[1, null, {}]", "application/reports+json", 204),
    ],
)
def test_malformed(client: TestClient, content: bytes, media_type: str, status: int) -> None:
    answer = client.post("/csp-report", content=content, headers={"content-type": media_type})
    assert answer.status_code == status
    assert count(client) == {}


def test_names_are_bounded(client: TestClient) -> None:
    for number in range(200):
        name = "a" * (number % 40 + 1) + "-" * (number // 40)
        client.post("/csp-report", json={"csp-report": {"effective-directive": name}})
    assert len(count(client)) <= 65


def test_a_flood_is_one_line_a_minute_and_directive() -> None:
    now = 0.0
    reports = CspReports(clock=lambda: now)
    with capture_logs() as lines:
        for _ in range(50):
            reports.count("img-src")
        reports.count("script-src")
        now = LOG_EVERY_S
        reports.count("img-src")
        reports.count("img-src")
    told = [(line["directive"], line["reports"]) for line in lines]
    assert told == [("img-src", 1), ("script-src", 1), ("img-src", 50)]
    assert reports.by_directive == {"img-src": 52, "script-src": 1}


def test_one_report_of_many_is_logged_once(client: TestClient) -> None:
    body = [{"body": {"effectiveDirective": "img-src"}}] * 50
    with capture_logs() as lines:
        assert client.post("/csp-report", json=body).status_code == 204
    assert len([line for line in lines if line["event"] == "csp_report"]) == 1
    assert count(client) == {"img-src": 50}
