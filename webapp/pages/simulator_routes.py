"""Routes of the simulator's pages and of the fragments that they load again."""

from __future__ import annotations

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from engine.errors import QueueFull
from webapp.dependencies import SimulationsDep
from webapp.i18n import texts
from webapp.pages.context_view import context_view, read_context_question
from webapp.pages.elsewhere import measured_device
from webapp.pages.serving_question import read_serving_question
from webapp.pages.serving_view import (
    KneeAnswer,
    ServingAnswer,
    knee_answer,
    serving_answer,
    serving_form,
)
from webapp.pages.simulator_question import read_simulator_question
from webapp.pages.simulator_view import simulator_answer, simulator_form
from webapp.pages.validation_view import validation_view
from webapp.rendering import language_of, link, render
from webapp.simulations import SimulationRunner

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


@router.get("/serving")
async def serving(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """A service under load: one run, its requests and its levels over time."""
    question = read_serving_question(request.query_params)
    context: dict[str, object] = {
        "room": "serving",
        "form": serving_form(question),
        "answer": await _served(request, simulations),
        "measured_device": measured_device,
    }
    return render(request, "pages/serving.html", context)


@router.get("/fragments/serving")
async def serving_fragment(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """The run alone."""
    answer = await _served(request, simulations)
    return render(request, "fragments/serving.html", {"answer": answer})


@router.get("/fragments/knee")
async def knee_fragment(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """Latency over throughput, of eight runs."""
    question = read_serving_question(request.query_params)
    said = texts(language_of(request))
    try:
        async with simulations.slot():
            knee = await anyio.to_thread.run_sync(knee_answer, question, said)
    except QueueFull as error:
        knee = KneeAnswer(refusal=error.message)
    return render(request, "fragments/knee.html", {"knee": knee})


async def _served(request: Request, simulations: SimulationRunner) -> ServingAnswer:
    question = read_serving_question(request.query_params)
    said = texts(language_of(request))
    try:
        async with simulations.slot():
            return await anyio.to_thread.run_sync(serving_answer, question, said)
    except QueueFull as error:
        return ServingAnswer(question, refusal=error.message)


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
