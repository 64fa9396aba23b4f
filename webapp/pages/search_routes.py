"""Routes of the pages that ask many questions at once: diagnosis, sweep, search."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from webapp.answers import Question
from webapp.computing import Computer
from webapp.dependencies import ComputerDep, SimulationsDep
from webapp.i18n import texts
from webapp.pages.cheapest_view import (
    CheapestView,
    cheapest_answer,
    read_cheapest_question,
    search_json,
)
from webapp.pages.diagnose_view import DiagnoseView, diagnose_answer, read_diagnose_question
from webapp.pages.elsewhere import measured_device
from webapp.pages.search_export import candidates_csv
from webapp.pages.sweep_view import SweepView, read_sweep_question, sweep_answer, sweep_as_csv
from webapp.rendering import language_of, render
from webapp.simulations import SimulationRunner

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/simulator/diagnose")
async def diagnose(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """One's own TTFT and ITL: which is slow, why, and what would help."""
    context: dict[str, object] = {
        "room": "simulator",
        "subroom": "diagnose",
        "diagnosis": await _diagnosed(request, simulations),
        "diagnose_path": "/simulator/diagnose",
        "measured_device": measured_device,
    }
    return render(request, "pages/diagnose.html", context)


@router.get("/fragments/diagnose")
async def diagnose_fragment(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """The diagnosis alone."""
    context: dict[str, object] = {"diagnosis": await _diagnosed(request, simulations)}
    return render(request, "fragments/diagnose_answer.html", context)


async def _diagnosed(request: Request, simulations: SimulationRunner) -> DiagnoseView:
    question = read_diagnose_question(request.query_params)
    return await diagnose_answer(question, simulations, texts(language_of(request)))


@router.get("/simulator/diagnose.json")
async def diagnosis_json(request: Request, computer: ComputerDep) -> Response:
    """The document that the API gives for the page's diagnosis."""
    question = read_diagnose_question(request.query_params)
    made = await computer.answer(Question("diagnose", question.document()), long=False)
    return Response(made, media_type="application/json")


@router.get("/simulator/sweep")
async def sweep(request: Request, computer: ComputerDep) -> HTMLResponse:
    """Two knobs turned through their values."""
    context: dict[str, object] = {
        "room": "simulator",
        "subroom": "sweep",
        "view": await _swept(request, computer),
        "measured_device": measured_device,
    }
    return render(request, "pages/sweep.html", context)


@router.get("/fragments/sweep")
async def sweep_fragment(request: Request, computer: ComputerDep) -> HTMLResponse:
    """The chart and the table alone."""
    return render(request, "fragments/sweep.html", {"view": await _swept(request, computer)})


@router.get("/simulator/sweep.csv")
async def sweep_csv(request: Request, computer: ComputerDep) -> Response:
    """Every metric of every cell of the page's sweep."""
    question = read_sweep_question(request.query_params)
    return Response(await sweep_as_csv(question, computer), media_type="text/csv; charset=utf-8")


async def _swept(request: Request, computer: Computer) -> SweepView:
    question = read_sweep_question(request.query_params)
    return await sweep_answer(question, computer, texts(language_of(request)))


@router.get("/simulator/search")
async def search(request: Request, computer: ComputerDep) -> HTMLResponse:
    """The cheapest deployments that keep limits on TTFT and ITL at a load."""
    context: dict[str, object] = {
        "room": "simulator",
        "subroom": "search",
        "view": await _found(request, computer),
    }
    return render(request, "pages/search.html", context)


@router.get("/fragments/search")
async def search_fragment(request: Request, computer: ComputerDep) -> HTMLResponse:
    """What was found alone."""
    return render(request, "fragments/search.html", {"view": await _found(request, computer)})


@router.get("/simulator/search.json")
async def search_as_json(request: Request, computer: ComputerDep) -> Response:
    """The document that the API gives for the page's search."""
    question = read_cheapest_question(request.query_params.multi_items())
    return Response(await search_json(question, computer), media_type="application/json")


@router.get("/simulator/search.csv")
async def search_csv(request: Request, computer: ComputerDep) -> Response:
    """Every deployment of that document as a line."""
    question = read_cheapest_question(request.query_params.multi_items())
    made = await search_json(question, computer)
    return Response(candidates_csv(made), media_type="text/csv; charset=utf-8")


async def _found(request: Request, computer: Computer) -> CheapestView:
    question = read_cheapest_question(request.query_params.multi_items())
    return await cheapest_answer(question, computer, texts(language_of(request)))
