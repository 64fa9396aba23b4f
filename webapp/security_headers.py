"""Headers on every HTTP answer: nothing from elsewhere is loaded, framed, sniffed or told."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSP_REPORT_PATH = "/csp-report"

_DIRECTIVES = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "object-src 'none'",
)
_UNUSED_FEATURES = (
    "accelerometer",
    "camera",
    "display-capture",
    "geolocation",
    "gyroscope",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "usb",
)


def content_security_policy(report_path: str) -> str:
    """The policy; ``report_path`` is where browsers report what they refused."""
    return "; ".join((*_DIRECTIVES, f"report-uri {report_path}", "report-to csp"))


class SecurityHeaders:
    """Pure ASGI; sets each header unless the handler set it itself."""

    def __init__(self, app: ASGIApp, root_path: str = "") -> None:
        self.app = app
        report_path = root_path + CSP_REPORT_PATH
        self.headers = {
            "content-security-policy": content_security_policy(report_path),
            "reporting-endpoints": f'csp="{report_path}"',
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "permissions-policy": ", ".join(f"{name}=()" for name in _UNUSED_FEATURES),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith(scope.get("root_path", "") + "/api/"):
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        await self.app(scope, receive, send_with_headers)
