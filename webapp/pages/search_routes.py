"""Routes of the pages that ask many questions at once: diagnosis, sweep, search."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from webapp.dependencies import SimulationsDep
from webapp.i18n import texts
from webapp.pages.diagnose_view import DiagnoseView, diagnose_answer, read_diagnose_question
from webapp.pages.elsewhere import measured_device
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
