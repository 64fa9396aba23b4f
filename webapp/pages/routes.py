"""Routes of the pages: ``GET /`` and the fragments that it loads again."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from webapp.dependencies import EngineDep
from webapp.i18n import texts
from webapp.pages.engine_view import engine_view
from webapp.pages.roofline_view import choose_dtype, roofline_view
from webapp.pages.script_texts import script_texts
from webapp.pages.suggestions import SUGGESTIONS
from webapp.rendering import language_of, render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/", name="home")
def home(request: Request, engine: EngineDep) -> HTMLResponse:
    """The first page: ask, watch, measure."""
    view = engine_view(engine)
    dtype = choose_dtype(view, None)
    context: dict[str, object] = {
        "engine": view,
        "dtype": dtype,
        "roofline": roofline_view(dtype),
        "suggestions": SUGGESTIONS,
        "script_texts": script_texts(texts(language_of(request))),
    }
    return render(request, "pages/home.html", context)


@router.get("/fragments/engine")
def engine_fragment(request: Request, engine: EngineDep, known: str = "") -> Response:
    """The engine's state; 204 while it is what the page already shows."""
    view = engine_view(engine)
    if known == view.mark:
        return Response(status_code=204)
    return render(request, "fragments/engine.html", {"engine": view})


@router.get("/fragments/dtype")
def dtype_fragment(request: Request, engine: EngineDep, dtype: str = "") -> HTMLResponse:
    """The choice of dtypes, once the engine has told which it offers."""
    view = engine_view(engine)
    context: dict[str, object] = {"engine": view, "dtype": choose_dtype(view, dtype)}
    return render(request, "fragments/dtype.html", context)


@router.get("/fragments/roofline")
def roofline_fragment(request: Request, engine: EngineDep, dtype: str = "") -> HTMLResponse:
    """This machine's roofline for one dtype."""
    chosen = choose_dtype(engine_view(engine), dtype)
    return render(request, "fragments/roofline.html", {"roofline": roofline_view(chosen)})
