"""Which Host and Origin headers are accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from webapp.origins import Authority, HostPolicy, OriginPolicy
from webapp.settings import Settings


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("localhost", True),
        ("localhost:8000", True),
        ("LOCALHOST:8000", True),
        ("localhost.:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evil-localhost", False),
        ("127.0.0.1.evil.example", False),
        ("192.168.0.7", False),
        ("", False),
        (None, False),
        ("localhost:8000:9", False),
        ("local host", False),
        ("localhost/", False),
        ("user@localhost", False),
        ("localhost, evil.example", False),
    ],
)
def test_hosts_on_loopback(header: str | None, allowed: bool) -> None:
    assert HostPolicy(Settings()).allows(header) is allowed


def test_hosts_beyond_loopback() -> None:
    policy = HostPolicy(
        Settings(host="0.0.0.0", allowed_hosts=("lab.example.org", "*.school.example"))
    )
    # A name that was rebound is a name; a literal address cannot be.
    for header in ("lab.example.org", "a.school.example:80", "192.168.0.7:8000", "[fe80::1]"):
        assert policy.allows(header)
    for header in ("school.example", "evil.example", "lab.example.org.evil.example"):
        assert not policy.allows(header)


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://localhost:8000", "localhost:8000", True),
        ("http://LOCALHOST:8000", "localhost:8000", True),
        ("http://localhost", "localhost", True),
        ("http://localhost:80", "localhost", True),
        ("https://localhost", "localhost", True),
        ("https://localhost:443", "localhost", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("http://localhost:8001", "localhost:8000", False),
        ("http://127.0.0.1:8000", "localhost:8000", False),
        ("http://localhost", "localhost:8000", False),
        ("http://localhost:8000", "localhost", False),
        ("https://evil.example", "localhost:8000", False),
        ("http://localhost:8000.evil.example", "localhost:8000", False),
        ("http://localhost:8000@evil.example", "localhost:8000", False),
        ("null", "localhost:8000", False),
        ("", "localhost:8000", False),
        ("file://", "localhost:8000", False),
        ("chrome-extension://abc", "localhost:8000", False),
        ("http://localhost:8000/", "localhost:8000", False),
        ("localhost:8000", "localhost:8000", False),
    ],
)
def test_origins(origin: str, host: str, allowed: bool) -> None:
    headers = Headers({"origin": origin, "host": host})
    assert OriginPolicy(Settings()).allows(headers, "http") is allowed
    assert OriginPolicy(Settings()).allows(headers, "ws") is allowed


def test_listed_origin_is_exact() -> None:
    policy = OriginPolicy(Settings(allowed_origins=("https://lms.example:8443",)))
    for origin, allowed in [
        ("https://lms.example:8443", True),
        ("http://lms.example:8443", False),
        ("https://lms.example", False),
        ("https://a.lms.example:8443", False),
    ]:
        assert policy.allows(Headers({"origin": origin, "host": "localhost"}), "ws") is allowed


def test_no_origin_is_a_program_and_two_are_none() -> None:
    policy = OriginPolicy(Settings())
    assert policy.allows(Headers({"host": "localhost"}), "ws")
    both = Headers(
        raw=[(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"http://x")]
    )
    assert not policy.allows(both, "ws")


@given(st.text(max_size=40))
def test_parsing_never_fails(text: str) -> None:
    authority = Authority.parse(text)
    assert authority is None or authority.host
