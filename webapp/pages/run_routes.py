"""``GET /runs/{id}``: a saved run as the first page showed it; ``GET /compare``: two of them."""

from __future__ import annotations

import re

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from webapp.dependencies import RunsDep
from webapp.i18n import Language
from webapp.pages.playground_texts import playground_texts
from webapp.pages.run_view import ComparisonView, RunView, Side, asked_id, run_view
from webapp.rendering import language_of, render
from webapp.store.records import StoredRun
from webapp.store.saved_runs import SavedRuns, read_stored

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)

_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")


@router.get("/runs/{run_id}", name="run_page")
async def run_page(request: Request, run_id: str, runs: RunsDep) -> HTMLResponse:
    """A saved run."""
    language = language_of(request)
    view = await _find(runs, run_id, language)
    if view is None:
        raise HTTPException(404)
    context: dict[str, object] = {
        "page": view,
        "engine": view,  # the stages count by the facts of the machine that ran it
        "roofline": view.roofline,
        "recorded_on": view.machine,
        "room": "run",
        "script_texts": playground_texts(language),
    }
    return _private(render(request, "pages/run.html", context))


@router.get("/compare")
async def compare_page(request: Request, runs: RunsDep, a: str = "", b: str = "") -> HTMLResponse:
    """Two saved runs side by side, each named by its link or its id."""
    language = language_of(request)
    sides = [
        Side(name, asked[:300], await _find(runs, asked_id(asked), language))
        for name, asked in (("a", a), ("b", b))
    ]
    context: dict[str, object] = {
        "page": ComparisonView((sides[0], sides[1])),
        "room": "run",
        "script_texts": playground_texts(language),
    }
    return _private(render(request, "pages/compare.html", context))


def _private(page: HTMLResponse) -> HTMLResponse:
    """Not kept by caches, nor listed by search engines that come upon a shared link."""
    page.headers["Cache-Control"] = "no-store"
    page.headers["X-Robots-Tag"] = "noindex"
    return page


async def _find(runs: SavedRuns, run_id: str, language: Language) -> RunView | None:
    if not _ID.fullmatch(run_id):
        return None
    stored = await runs.get(run_id)
    if stored is None:
        return None
    return await anyio.to_thread.run_sync(_view, stored, language)


def _view(stored: StoredRun, language: Language) -> RunView | None:
    run = read_stored(stored)
    return None if run is None else run_view(stored, run, language)
