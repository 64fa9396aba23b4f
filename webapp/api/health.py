"""``GET`` and ``HEAD`` of ``/healthz`` and ``/readyz``; a load balancer may ask for either."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp.dependencies import EngineDep
from webapp.live.engine_port import READY
from webapp.problems import JsonResponse
from webapp.schemas.health import HealthDocument, ReadyDocument

router = APIRouter(tags=["health"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=HealthDocument)
async def healthz() -> Response:
    """The process answers; says nothing about the engine."""
    return _answer(HealthDocument(status="up"), 200)


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", response_model=ReadyDocument, responses={503: {"model": ReadyDocument}})
async def readyz(request: Request, engine: EngineDep) -> Response:
    """Whether a prompt sent now would run; 503 and the reason otherwise."""
    if request.app.state.live.stopping:
        reason = "the server is stopping"
        return _answer(ReadyDocument(status="not_ready", state="stopped", reason=reason), 503)
    if engine.state != READY:
        document = ReadyDocument(status="not_ready", state=engine.state, reason=engine.reason)
        return _answer(document, 503)
    return _answer(ReadyDocument(status="ready", state=engine.state, reason=""), 200)


def _answer(document: HealthDocument | ReadyDocument, status: int) -> Response:
    headers = {"cache-control": "no-store"}
    if status == 503:
        headers["retry-after"] = "1"
    return JsonResponse(document.model_dump(), status_code=status, headers=headers)
