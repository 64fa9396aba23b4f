"""``POST /csp-report``: browsers tell what the content security policy refused.

Reports are counted and logged by directive only; what a page or an attacker put into them is
neither stored nor repeated. The log gets one line per directive and minute.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import structlog
from fastapi import APIRouter, Request, Response

from webapp import json_codec
from webapp.problems import Problem
from webapp.security_headers import CSP_REPORT_PATH

router = APIRouter(include_in_schema=False)
log = structlog.get_logger("webapp.csp")

MAX_REPORT_BYTES = 16 * 1024
MEDIA_TYPES = ("application/csp-report", "application/reports+json", "application/json")
LOG_EVERY_S = 60.0
_DIRECTIVE = re.compile(r"[a-z-]{1,40}")


class CspReports:
    """How often each directive was violated since the process started."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.by_directive: dict[str, int] = {}
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}

    @property
    def total(self) -> int:
        return sum(self.by_directive.values())

    def count(self, directive: str) -> None:
        """Counts one report; names that are no directive are one bucket."""
        name = directive if _DIRECTIVE.fullmatch(directive) else "unknown"
        if len(self.by_directive) >= 64 and name not in self.by_directive:
            name = "unknown"
        self.by_directive[name] = self.by_directive.get(name, 0) + 1
        self._log(name)

    def _log(self, name: str) -> None:
        """The first report of a directive in a minute, with the number since the last line."""
        now, count = self._clock(), self.by_directive[name]
        logged_at, logged_count = self._logged.get(name, (None, 0))
        if logged_at is None or now - logged_at >= LOG_EVERY_S:
            self._logged[name] = (now, count)
            log.warning("csp_report", directive=name, reports=count - logged_count)


@router.post(CSP_REPORT_PATH)
async def csp_report(request: Request) -> Response:
    """Takes a report in the old or the new format."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise Problem(415, "unsupported_media_type", "Send a CSP report.")
    body = await request.body()
    if len(body) > MAX_REPORT_BYTES:
        raise Problem(413, "body_too_large", f"Send at most {MAX_REPORT_BYTES} bytes.")
    try:
        document = json_codec.loads(body)
    except json_codec.JsonRefused as refused:
        raise Problem(400, refused.code, refused.detail) from None
    reports: CspReports = request.app.state.csp_reports
    for directive in _directives(document):
        reports.count(directive)
    return Response(status_code=204)


def _directives(document: json_codec.Json) -> list[str]:
    entries = document if isinstance(document, list) else [document]
    found: list[str] = []
    for entry in entries[:50]:
        if not isinstance(entry, dict):
            continue
        body = entry.get("csp-report", entry.get("body"))
        if not isinstance(body, dict):
            continue
        name = body.get("effective-directive", body.get("effectiveDirective"))
        name = name if name is not None else body.get("violated-directive")
        found.append(name if isinstance(name, str) else "unknown")
    return found
