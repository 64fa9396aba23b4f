"""Routes of the lessons, the claims and the code that lessons point to."""

from __future__ import annotations

from threading import Lock

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse

from engine.errors import EngineError
from webapp.claims.catalogue import CHECKS, CLAIMS, get_claim
from webapp.claims.claim import Claim
from webapp.dependencies import BenchDep, ClaimsDep, EngineDep, GoneDep, PredictorDep
from webapp.i18n import Language, texts
from webapp.lessons.catalogue import LESSONS, find_code, get_lesson
from webapp.lessons.glossary import TERMS
from webapp.lessons.lesson import Lesson, source_code
from webapp.lessons.search import MAX_QUERY, Hit, LessonIndex, sections_of
from webapp.live.engine_port import EnginePort
from webapp.pages.engine_view import engine_view
from webapp.pages.lesson_view import SourceView, learn_view, lesson_view
from webapp.prediction import StepPredictor
from webapp.rendering import language_of, render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/learn")
async def learn(
    request: Request, engine: EngineDep, predictor: PredictorDep, q: str = ""
) -> HTMLResponse:
    """The table of contents, and what a search has found."""
    context: dict[str, object] = {
        "room": "learn",
        "view": learn_view(texts(language_of(request))),
        "query": q[:MAX_QUERY],
        "hits": await _hits(request, engine, predictor, q),
    }
    return render(request, "pages/learn.html", context)


@router.get("/fragments/lesson-search")
async def lesson_search(
    request: Request, engine: EngineDep, predictor: PredictorDep, q: str = ""
) -> HTMLResponse:
    """What a search has found, alone."""
    hits = await _hits(request, engine, predictor, q)
    return render(request, "fragments/lesson_search.html", {"query": q[:MAX_QUERY], "hits": hits})


@router.get("/glossary")
async def glossary(request: Request) -> HTMLResponse:
    """The words of the field, each with a sentence."""
    return render(request, "pages/glossary.html", {"room": "learn", "terms": TERMS})


@router.get("/learn/{slug}")
async def lesson(
    request: Request, slug: str, engine: EngineDep, predictor: PredictorDep
) -> HTMLResponse:
    """One lesson."""
    found = get_lesson(slug)
    if found is None:
        raise HTTPException(404)
    return _lesson_page(request, found, engine, predictor)


@router.get("/claims")
async def claims(request: Request) -> HTMLResponse:
    """All claims of the article, each with its verdict."""
    checked = [claim for claim in CLAIMS if claim.id in CHECKS]
    return render(request, "pages/claims.html", {"room": "claims", "claims": checked})


@router.post("/fragments/claims/{claim_id}")
async def claim_fragment(
    request: Request, claim_id: str, runner: ClaimsDep, bench: BenchDep, gone: GoneDep
) -> HTMLResponse:
    """Checks a claim now, and tells what was found."""
    claim = _known(claim_id)
    context: dict[str, object] = {"claim": claim, "finding": None, "refusal": None}
    try:
        context["finding"] = await runner.find(claim, bench, gone)
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


def _lesson_page(
    request: Request, lesson: Lesson, engine: EnginePort, predictor: StepPredictor
) -> HTMLResponse:
    context: dict[str, object] = {
        **lesson.shows(language_of(request)),
        "room": "learn",
        "view": lesson_view(lesson, texts(language_of(request))),
        "lesson": lesson,
        "engine": engine_view(engine, predictor),
    }
    return render(request, f"lessons/{lesson.slug}.html", context)


_INDEXES: dict[Language, LessonIndex] = {}
_INDEXING = Lock()


async def _hits(
    request: Request, engine: EnginePort, predictor: StepPredictor, query: str
) -> list[Hit]:
    if not query.strip():
        return []
    # The first search renders every lesson: a second, and not on the event loop.
    index = await anyio.to_thread.run_sync(_index, request, engine, predictor)
    return index.search(query)


def _index(request: Request, engine: EnginePort, predictor: StepPredictor) -> LessonIndex:
    """The words of all lessons in the reader's language; rendered once while the process lives."""
    language = language_of(request)
    with _INDEXING:
        if language not in _INDEXES:
            index = LessonIndex()
            said = texts(language)
            for lesson in LESSONS:
                page = bytes(_lesson_page(request, lesson, engine, predictor).body).decode()
                index.add(sections_of(lesson.slug, said.gettext(lesson.title), page))
            _INDEXES[language] = index
    return _INDEXES[language]
