"""Routes of the pages: ``GET /`` and the fragments it loads."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from webapp.rendering import render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/", name="home")
async def home(request: Request) -> HTMLResponse:
    """The first page: ask, watch, measure."""
    return render(request, "pages/home.html")
