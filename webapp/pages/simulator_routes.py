"""Routes of the simulator's pages and of the fragments that they load again."""

from __future__ import annotations

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from webapp.i18n import texts
from webapp.pages.context_view import context_view, read_context_question
from webapp.pages.elsewhere import measured_device
from webapp.pages.simulator_question import read_simulator_question
from webapp.pages.simulator_view import simulator_answer, simulator_form
from webapp.pages.validation_view import validation_view
from webapp.rendering import language_of, link, render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/simulator")
async def simulator(request: Request) -> HTMLResponse:
    """Any model on any hardware, and a second scenario beside it."""
    question = read_simulator_question(request.query_params)
    answer = await anyio.to_thread.run_sync(simulator_answer, question, texts(language_of(request)))
    context: dict[str, object] = {
        "room": "simulator",
        "form": simulator_form(question),
        "answer": answer,
        "measured_device": measured_device,
        "validation": link(request, "/simulator/validation"),
    }
    return render(request, "pages/simulator.html", context)


@router.get("/fragments/simulator")
async def simulator_fragment(request: Request) -> HTMLResponse:
    """The answer alone."""
    question = read_simulator_question(request.query_params)
    answer = await anyio.to_thread.run_sync(simulator_answer, question, texts(language_of(request)))
    return render(request, "fragments/simulator.html", {"answer": answer})


@router.get("/simulator/deepseek-v4")
async def deepseek(request: Request) -> HTMLResponse:
    """What one more token costs at a long context, of four DeepSeek models."""
    return _deepseek(request, "pages/deepseek.html")


@router.get("/fragments/deepseek")
async def deepseek_fragment(request: Request) -> HTMLResponse:
    """The same for another context, weighting or cache format."""
    return _deepseek(request, "fragments/deepseek.html")


@router.get("/simulator/validation")
async def validation(request: Request) -> HTMLResponse:
    """How far predictions are from published measurements."""
    view = validation_view(language_of(request))
    return render(request, "pages/validation.html", {"room": "validation", "view": view})


def _deepseek(request: Request, template: str) -> HTMLResponse:
    question = read_context_question(request.query_params)
    view = context_view(question, texts(language_of(request)))
    return render(request, template, {"room": "deepseek", "view": view})
