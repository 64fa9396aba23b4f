"""Binds the sockets and runs uvicorn in this process."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

import uvicorn

from webapp.app import create_app
from webapp.live.connection import MAX_MESSAGE_BYTES
from webapp.live.hub import LiveHub
from webapp.live.uvicorn_protocol import LiveWebSocketProtocol
from webapp.logging import configure_logging
from webapp.settings import Settings

BACKLOG = 2048
MAX_HEAD_BYTES = 32 * 1024
GRACEFUL_SHUTDOWN_S = 4
PING_INTERVAL_S = 20.0
PING_TIMEOUT_S = 20.0
# An address family that this machine does not have is no reason not to serve the other one.
_NO_SUCH_FAMILY = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)


class CannotListen(Exception):
    """The address cannot be bound; the message says why and what to do."""


class LiveServer(uvicorn.Server):
    """Tells running requests that the server stops before their sockets are closed."""

    def __init__(self, config: uvicorn.Config, hub: LiveHub) -> None:
        super().__init__(config)
        self._hub = hub

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._hub.interrupt()
        await super().shutdown(sockets)


def serve(settings: Settings) -> None:
    """Serves until SIGINT or SIGTERM; then, after an orderly end, the signal takes its effect.

    Raises:
        CannotListen: the port is taken, or the host is no address of this machine.
    """
    configure_logging(settings)
    sockets = bind(settings.host, settings.port)
    app = create_app(settings)
    server = LiveServer(server_config(app), app.state.live)
    port = sockets[0].getsockname()[1]
    print(f"First Token: {url(settings.host, port)}{settings.root_path}/", flush=True)
    if not settings.binds_loopback:
        print(
            "Other machines can reach this address. By name only those in "
            "FIRSTTOKEN_ALLOWED_HOSTS are served.",
            flush=True,
        )
    server.run(sockets=sockets)


def server_config(app: object) -> uvicorn.Config:
    """How uvicorn runs ``app``: no deflate, small frames, pings, own logs."""
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]
        # h11 bounds the head of a request; the faster parser reads headers without end.
        http="h11",
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws=LiveWebSocketProtocol,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        ws_ping_interval=PING_INTERVAL_S,
        ws_ping_timeout=PING_TIMEOUT_S,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        backlog=BACKLOG,
        server_header=False,
        access_log=False,
        log_config=None,
    )


def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets on every address of ``host``, all on the same port.

    ``localhost`` gives 127.0.0.1 and ::1 where the machine has both, ``::`` takes IPv4 as well.
    """
    host = host.strip("[]")
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except OSError:
        raise CannotListen("The host is not an address or a name of this machine.") from None
    sockets: list[socket.socket] = []
    reason: OSError | None = None
    # IPv4 first: a port of 0 is then chosen once and taken for the other addresses, too.
    addresses = sorted({(entry[0], entry[4][0]) for entry in found})
    for family, address in addresses:
        chosen = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_listen(family, str(address), chosen))
        except OSError as error:
            reason = error
            if error.errno not in _NO_SUCH_FAMILY:
                _close_all(sockets)
                raise CannotListen(_why(error, host, chosen)) from None
    if not sockets:
        raise CannotListen(_why(reason, host, port))
    return sockets


def url(host: str, port: int) -> str:
    """The address to open in a browser on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _listen(family: int, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            dual_stack = address == "::"
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not dual_stack))
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _close_all(sockets: Sequence[socket.socket]) -> None:
    for listener in sockets:
        listener.close()


def _why(error: OSError | None, host: str, port: int) -> str:
    code = None if error is None else error.errno
    if code == errno.EADDRINUSE:
        return f"Port {port} on {host} is taken; stop what uses it, or choose another --port."
    if code == errno.EACCES:
        return f"Port {port} needs privileges; choose one above 1023."
    return f"{host} is not an address that this machine can listen on."
