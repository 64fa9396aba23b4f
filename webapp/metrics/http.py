"""``GET /metrics``, and how long requests over HTTP take."""

from __future__ import annotations

import ipaddress
from typing import cast

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Scope

from webapp.dependencies import SettingsDep
from webapp.metrics.collecting import Metrics
from webapp.problems import Problem
from webapp.timed_http import TimedHttp

router = APIRouter(include_in_schema=False)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
_UNKNOWN = "other"


@router.get("/metrics")
async def metrics(request: Request, settings: SettingsDep) -> Response:
    """All metrics. For this machine alone unless ``FIRSTTOKEN_METRICS`` says otherwise."""
    if settings.metrics == "off":
        raise Problem(404, "not_found", "Metrics are switched off here.")
    if settings.metrics == "local" and not _from_here(request):
        raise Problem(
            403, "metrics_are_local", "Metrics are for this machine; see FIRSTTOKEN_METRICS."
        )
    found = cast(Metrics, request.app.state.metrics)
    headers = {"cache-control": "no-store"}
    return Response(found.text(), media_type=CONTENT_TYPE_LATEST, headers=headers)


def _from_here(request: Request) -> bool:
    """Whether a program of this machine asks, and not through a proxy on it for someone else."""
    if any(name in request.headers for name in _FORWARDED):
        return False
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


class HttpDurations(TimedHttp):
    """Times every answer, by its route's template: no path that somebody made up is a label."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        super().__init__(app)
        self.metrics = metrics

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else _UNKNOWN
        self.metrics.http(method, _route(scope), status, seconds)


def _route(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) and path else _UNKNOWN
