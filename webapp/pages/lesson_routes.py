"""Routes of the lessons, the claims and the code that lessons point to."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse

from engine.errors import EngineError
from webapp.claims.catalogue import CHECKS, CLAIMS, get_claim
from webapp.claims.claim import Claim
from webapp.dependencies import BenchDep, ClaimsDep, EngineDep, PredictorDep
from webapp.i18n import texts
from webapp.lessons.catalogue import find_code, get_lesson
from webapp.lessons.lesson import source_code
from webapp.pages.engine_view import engine_view
from webapp.pages.lesson_view import SourceView, learn_view, lesson_view
from webapp.rendering import language_of, render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/learn")
async def learn(request: Request) -> HTMLResponse:
    """The table of contents."""
    view = learn_view(texts(language_of(request)))
    return render(request, "pages/learn.html", {"room": "learn", "view": view})


@router.get("/learn/{slug}")
async def lesson(
    request: Request, slug: str, engine: EngineDep, predictor: PredictorDep
) -> HTMLResponse:
    """One lesson."""
    found = get_lesson(slug)
    if found is None:
        raise HTTPException(404)
    view = lesson_view(found, texts(language_of(request)))
    context: dict[str, object] = {
        **found.shows(),
        "room": "learn",
        "view": view,
        "lesson": found,
        "engine": engine_view(engine, predictor),
    }
    return render(request, f"lessons/{slug}.html", context)


@router.get("/claims")
async def claims(request: Request) -> HTMLResponse:
    """All claims of the article, each with its verdict."""
    return render(request, "pages/claims.html", {"room": "claims", "claims": CLAIMS})


@router.post("/fragments/claims/{claim_id}")
async def claim_fragment(
    request: Request, claim_id: str, runner: ClaimsDep, bench: BenchDep
) -> HTMLResponse:
    """Checks a claim now, and tells what was found."""
    claim = _known(claim_id)
    context: dict[str, object] = {"claim": claim, "finding": None, "refusal": None}
    try:
        context["finding"] = await runner.find(claim, bench)
    except EngineError as error:
        context["refusal"] = bench.said.gettext(error.message)
    return render(request, "fragments/claim_finding.html", context)


@router.get("/source/{path:path}")
async def source(request: Request, path: str, name: str = "") -> HTMLResponse:
    """A definition that a lesson points to; no other code is shown."""
    link = find_code(path, name)
    if link is None:
        raise HTTPException(404)
    view = SourceView(path, name, link.does, source_code(path, name))
    return render(request, "pages/source.html", {"room": "learn", "view": view})


def _known(claim_id: str) -> Claim:
    claim = get_claim(claim_id)
    if claim is None or claim.id not in CHECKS:
        raise HTTPException(404)
    return claim
