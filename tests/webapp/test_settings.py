"""Settings: from the environment, bounded, without wildcards."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from webapp.settings import Settings


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOKEN_PORT", "9001")
    monkeypatch.setenv("FIRSTTOKEN_MODEL", "tiny")
    monkeypatch.setenv("FIRSTTOKEN_ALLOWED_HOSTS", "Lab.example.org, *.school.example")
    monkeypatch.setenv("FIRSTTOKEN_ALLOWED_ORIGINS", "https://lms.example:8443")
    settings = Settings()
    assert settings.port == 9001
    assert settings.engine_options.model == "tiny"
    assert settings.allowed_hosts == ("lab.example.org", "*.school.example")
    assert settings.allowed_origins == ("https://lms.example:8443",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"allowed_hosts": "*"},
        {"allowed_hosts": "https://lab.example.org"},
        {"allowed_hosts": "lab.example.org:80"},
        {"allowed_origins": "*"},
        {"allowed_origins": "lab.example.org"},
        {"allowed_origins": "https://lab.example.org/path"},
        {"root_path": "lab"},
        {"root_path": "/../x"},
        {"root_path": '/a"b'},
        {"port": 70000},
        {"live_generations": 0},
        {"max_body_bytes": 10**12},
        {"mode": "hosted"},
    ],
)
def test_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)  # pyright: ignore


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("127.8.9.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.4", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert Settings(host=host).binds_loopback is loopback


@pytest.mark.parametrize(
    ("given", "kept"), [("", ""), ("/", ""), ("/lab/", "/lab"), ("/a/b", "/a/b")]
)
def test_root_path(given: str, kept: str) -> None:
    assert Settings(root_path=given).root_path == kept
