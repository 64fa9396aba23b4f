"""What is let in at all: hosts, origins and bodies. Pure ASGI.

Nothing behind these classes sees a request for another host, an unsafe one from another site, or a
body that is too large or too slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webapp.origins import HostPolicy, OriginPolicy
from webapp.problems import ProblemResponse
from webapp.security_headers import CSP_REPORT_PATH

UNSAFE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MAX_DISCARDED_BYTES = 64 * 1024 * 1024
"""How much of a body that is too large is read before the connection is cut."""


class SubPath:
    """Serves the app under a prefix, whether or not the proxy in front strips it.

    Afterwards ``path`` always begins with ``root_path``, which is what routing and mounts expect.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self.app = app
        self.root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.root_path and scope["type"] in ("http", "websocket"):
            path: str = scope["path"]
            scope = dict(scope)
            scope["root_path"] = self.root_path
            if path != self.root_path and not path.startswith(self.root_path + "/"):
                scope["path"] = self.root_path + path
        await self.app(scope, receive, send)


class AllowedHosts:
    """Refuses requests for host names that are not ours, against DNS rebinding."""

    def __init__(self, app: ASGIApp, policy: HostPolicy) -> None:
        self.app = app
        self.policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) == 1 and self.policy.allows(hosts[0]):
            await self.app(scope, receive, send)
            return
        detail = "This host name is not served here; see FIRSTTOKEN_ALLOWED_HOSTS."
        if scope["type"] == "http":
            await ProblemResponse(400, "host_not_allowed", detail)(scope, receive, send)
        else:
            await deny_websocket(scope, receive, send, 400, detail)


class BodyRules:
    """Reads and checks the body of unsafe methods before anything else does.

    Other sites' pages are refused (403), as are bodies that are too large (413) or too slow (408).
    ``larger`` gives paths that take more than ``max_bytes`` their own limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        origins: OriginPolicy,
        max_bytes: int,
        timeout_s: float,
        larger: Mapping[str, int],
    ) -> None:
        self.app = app
        self.origins = origins
        self.max_bytes = max_bytes
        self.larger = larger
        self.timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in UNSAFE_METHODS:
            await self.app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        body = await self._read(receive, self.larger.get(path, self.max_bytes))
        if body is None:
            return  # the client left before its body was complete
        refusal = body if isinstance(body, ProblemResponse) else self._refuse(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif isinstance(body, bytes):
            await self.app(scope, _replay(body, receive), send)

    def _refuse(self, scope: Scope) -> ProblemResponse | None:
        headers = Headers(scope=scope)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        # Browsers send reports with the origin of the page or "null"; they change nothing.
        if path == CSP_REPORT_PATH or self.origins.allows(headers, scope["scheme"]):
            return None
        return ProblemResponse(
            403, "origin_not_allowed", "This method is not open to pages of other sites."
        )

    async def _read(self, receive: Receive, max_bytes: int) -> bytes | ProblemResponse | None:
        """The body, or why there is none.

        What a body has beyond the limit is read and thrown away, up to a point: a client that is
        still sending when its connection is closed would see a reset instead of the answer.
        """
        body = bytearray()
        size = 0
        try:
            async with asyncio.timeout(self.timeout_s):
                more = True
                while more and size <= MAX_DISCARDED_BYTES:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunk: bytes = message.get("body", b"")
                    size += len(chunk)
                    if size <= max_bytes:
                        body += chunk
                    more = message.get("more_body", False)
        except TimeoutError:
            if size <= max_bytes:
                return ProblemResponse(
                    408,
                    "body_too_slow",
                    f"Send the whole body within {self.timeout_s:g} seconds.",
                    headers={"connection": "close"},
                )
        if size > max_bytes:
            return ProblemResponse(
                413,
                "body_too_large",
                f"Send at most {max_bytes} bytes in the body.",
                headers={"connection": "close"},
            )
        return bytes(body)


async def deny_websocket(
    scope: Scope, receive: Receive, send: Send, status: int, detail: str
) -> None:
    """Refuses a websocket handshake with an HTTP status, before it is accepted."""
    await receive()
    if "websocket.http.response" in scope.get("extensions", {}):
        response = PlainTextResponse(detail, status, headers={"x-content-type-options": "nosniff"})
        await response(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": ""})


def _replay(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
