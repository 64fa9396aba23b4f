"""Routes of the pages: ``GET /`` and the fragments that it loads again."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from webapp.dependencies import EngineDep, PredictorDep, SimulationsDep
from webapp.pages.elsewhere import (
    elsewhere_answer,
    elsewhere_form,
    measured_device,
    read_question,
)
from webapp.pages.engine_view import engine_view
from webapp.pages.playground_texts import playground_texts
from webapp.pages.roofline_view import choose_dtype, roofline_view
from webapp.pages.suggestions import SUGGESTIONS
from webapp.rendering import language_of, render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/", name="home")
async def home(
    request: Request, engine: EngineDep, predictor: PredictorDep, simulations: SimulationsDep
) -> HTMLResponse:
    """The first page: ask, watch, measure. With ``?hardware=`` it answers that form as well."""
    question = read_question(request.query_params)
    if "hardware" in request.query_params:
        elsewhere = await elsewhere_answer(question, simulations)
    else:
        elsewhere = elsewhere_form(question)
    view = engine_view(engine, predictor)
    dtype = choose_dtype(view, None)
    context: dict[str, object] = {
        "engine": view,
        "dtype": dtype,
        "roofline": roofline_view(view, dtype),
        "suggestions": SUGGESTIONS,
        "elsewhere": elsewhere,
        "measured_device": measured_device,
        "room": "run",
        "script_texts": playground_texts(language_of(request)),
    }
    return render(request, "pages/home.html", context)


@router.get("/fragments/engine")
async def engine_fragment(
    request: Request, engine: EngineDep, predictor: PredictorDep, known: str = ""
) -> Response:
    """The engine's state; 204 while it is what the page already shows."""
    view = engine_view(engine, predictor)
    if known == view.mark:
        return Response(status_code=204)
    return render(request, "fragments/engine.html", {"engine": view})


@router.get("/fragments/dtype")
async def dtype_fragment(
    request: Request, engine: EngineDep, predictor: PredictorDep, dtype: str = ""
) -> HTMLResponse:
    """The choice of dtypes, once the engine has told which it offers."""
    view = engine_view(engine, predictor)
    context: dict[str, object] = {"engine": view, "dtype": choose_dtype(view, dtype)}
    return render(request, "fragments/dtype.html", context)


@router.get("/fragments/roofline")
async def roofline_fragment(
    request: Request, engine: EngineDep, predictor: PredictorDep, dtype: str = ""
) -> HTMLResponse:
    """This machine's roofline for one dtype."""
    view = engine_view(engine, predictor)
    context: dict[str, object] = {"roofline": roofline_view(view, choose_dtype(view, dtype))}
    return render(request, "fragments/roofline.html", context)


@router.get("/fragments/elsewhere")
async def elsewhere_fragment(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """The prediction for another machine or model."""
    view = await elsewhere_answer(read_question(request.query_params), simulations)
    return render(request, "fragments/elsewhere_answer.html", {"elsewhere": view})
