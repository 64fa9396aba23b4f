"""Who may talk to us: host names against DNS rebinding, origins against other sites' pages."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from starlette.datastructures import Headers

from webapp.settings import LOOPBACK_NAMES, Settings

_AUTHORITY = re.compile(
    r"(?P<host>\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(:(?P<port>[0-9]{1,5}))?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Authority:
    """A host name (lower case, address literals without brackets) and a port, if one was named."""

    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Authority | None:
        """From ``host``, ``host:port`` or ``[v6]:port``; None if it is none of these."""
        match = _AUTHORITY.fullmatch(text.lower())
        if match is None:
            return None
        port = match["port"]
        return cls(match["host"].strip("[]").rstrip("."), None if port is None else int(port))


class HostPolicy:
    """Which ``Host`` headers are ours."""

    def __init__(self, settings: Settings) -> None:
        names = (*LOOPBACK_NAMES, *settings.allowed_hosts)
        self._names = frozenset(name for name in names if not name.startswith("*."))
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._any_address = not settings.binds_loopback

    def allows(self, header: str | None) -> bool:
        """Whether a request with this ``Host`` header is answered."""
        authority = Authority.parse(header or "")
        if authority is None:
            return False
        host = authority.host
        if host in self._names or host.endswith(self._suffixes):
            return True
        return self._any_address and _is_address(host)


class OriginPolicy:
    """Which ``Origin`` headers may open a websocket or call an unsafe method."""

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(settings.allowed_origins)
        self._missing_allowed = settings.mode == "local"

    def allows(self, headers: Headers, scheme: str) -> bool:
        """Same origin, an origin of the list, or (in local mode) a client that is no browser.

        ``scheme`` is the request's own. Host and port must agree exactly; the origin's scheme is
        not compared with ours, because TLS may have ended at a proxy.
        """
        values = headers.getlist("origin")
        if not values:
            return self._missing_allowed
        if len(values) > 1:
            return False
        origin = values[0].lower()
        if origin in self._origins:
            return True
        origin_scheme, separator, rest = origin.partition("://")
        if not separator or origin_scheme not in ("http", "https"):
            return False
        theirs, ours = Authority.parse(rest), Authority.parse(headers.get("host", ""))
        if theirs is None or ours is None or theirs.host != ours.host:
            return False
        their_port = theirs.port or _DEFAULT_PORTS[origin_scheme]
        our_ports = {ours.port} if ours.port else {_DEFAULT_PORTS[origin_scheme]}
        if ours.port is None:
            our_ports.add(_DEFAULT_PORTS.get(scheme, 80))
        return their_port in our_ports


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
