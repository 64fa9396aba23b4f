"""One client's address may not take all connections."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from starlette.testclient import WebSocketDenialResponse

from tests.webapp.fake_engine import FakeEngine
from tests.webapp.live.test_generation import URL
from tests.webapp.live_server import wait_for
from webapp.app import create_app
from webapp.live.addresses import AddressLimit, client_network
from webapp.settings import Settings

ORIGIN = "http://localhost"


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("testclient", "testclient"),
        (None, ""),
    ],
)
def test_what_counts_as_one_client(host: str | None, network: str) -> None:
    assert client_network(host) == network


def test_the_limit_counts_and_forgets() -> None:
    limit = AddressLimit(2)
    assert [limit.take("a"), limit.take("a"), limit.take("a"), limit.take("b")] == [
        True,
        True,
        False,
        True,
    ]
    limit.give_back("a")
    assert [limit.take("a"), limit.take("a")] == [True, False]
    for network in ("a", "a", "b"):
        limit.give_back(network)
    assert len(limit) == 0


def test_one_address_leaves_room_for_others() -> None:
    app = create_app(Settings(live_connections_per_address=2), FakeEngine())
    mine = TestClient(app, ORIGIN, client=("2001:db8::1", 1))
    neighbour = TestClient(app, ORIGIN, client=("2001:db8::2", 1))
    other = TestClient(app, ORIGIN, client=("2001:db8:0:1::1", 1))
    with mine.websocket_connect(URL) as one, neighbour.websocket_connect(URL) as two:
        one.receive_json()
        two.receive_json()
        for client in (mine, neighbour):
            with pytest.raises(WebSocketDenialResponse) as denied:
                client.websocket_connect(URL).__enter__()
            assert denied.value.status_code == 429
        with other.websocket_connect(URL) as three:
            assert three.receive_json()["type"] == "hello"
    wait_for(lambda: len(app.state.live) == 0)
    with mine.websocket_connect(URL) as again:
        assert again.receive_json()["type"] == "hello"


def test_a_connection_that_is_refused_takes_no_place() -> None:
    app = create_app(Settings(live_connections_per_address=1), FakeEngine())
    client = TestClient(app, ORIGIN)
    for _ in range(3):
        with pytest.raises(WebSocketDenialResponse) as denied:
            client.websocket_connect(URL, headers={"origin": "https://evil.example"}).__enter__()
        assert denied.value.status_code == 403
    with client.websocket_connect(URL) as socket:
        assert socket.receive_json()["type"] == "hello"
