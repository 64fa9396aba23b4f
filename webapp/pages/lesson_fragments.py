"""Fragments that lessons load again when a reader turns a knob: computed, never measured."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from webapp.pages.heads_view import heads_view, read_heads_question
from webapp.pages.sizes_view import sizes_view
from webapp.rendering import render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/fragments/heads")
async def heads_fragment(request: Request) -> HTMLResponse:
    """Bytes of a token's keys and values by who shares them."""
    view = heads_view(read_heads_question(request.query_params))
    return render(request, "fragments/heads.html", {"view": view})


@router.get("/fragments/sizes")
async def sizes_fragment(request: Request) -> HTMLResponse:
    """A model's weights in each number format."""
    return render(request, "fragments/sizes.html", {"view": sizes_view(request.query_params)})
