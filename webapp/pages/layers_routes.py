"""Fragments of lesson 5, the layers."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from webapp.dependencies import EngineDep
from webapp.i18n import texts
from webapp.pages.layers_view import parts_view, read_parts
from webapp.rendering import language_of, render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/fragments/layers/parts")
async def parts(request: Request, engine: EngineDep) -> HTMLResponse:
    """Where a model's parameters, FLOPs and bytes are."""
    said = texts(language_of(request))
    view = parts_view(read_parts(request.query_params), engine.info, said)
    return render(request, "fragments/layers_parts.html", {"view": view})
