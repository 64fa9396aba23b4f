"""Routes of the simulator's pages and of the fragments that they load again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from urllib.parse import parse_qsl

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from starlette.responses import Response

from engine.errors import EngineError, QueueFull
from webapp.answers import Form, Question
from webapp.computing import Computer
from webapp.dependencies import ComputerDep, SimulationsDep
from webapp.i18n import texts
from webapp.pages.context_view import context_view, read_context_question
from webapp.pages.elsewhere import measured_device
from webapp.pages.query import moved_knobs
from webapp.pages.refusal_words import refusal_words
from webapp.pages.serving_question import (
    ServingQuestion,
    read_serving_question,
    read_trace_question,
)
from webapp.pages.serving_runs import ServedRun, body_of, read_runs
from webapp.pages.serving_view import (
    KneeAnswer,
    ServingAnswer,
    draw_knee,
    draw_serving,
    knee_questions,
    serving_form,
)
from webapp.pages.simulator_export import ExplainView, explain_view, scenario_csv, scenario_of
from webapp.pages.simulator_question import (
    SimulatorQuestion,
    moved_in_sides,
    read_simulator_question,
)
from webapp.pages.simulator_view import SimulatorAnswer, simulator_answer, simulator_form
from webapp.pages.validation_view import validation_view
from webapp.problems import JsonResponse, Problem
from webapp.rendering import language_of, link, render
from webapp.simulations import SHORT_EFFORT_S, SimulationRunner

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)

_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 64


@router.get("/simulator")
async def simulator(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """Any model on any hardware, and a second scenario beside it."""
    question = read_simulator_question(request.query_params)
    answer = await _simulated(request, question, simulations)
    context: dict[str, object] = {
        "room": "simulator",
        "form": simulator_form(question),
        "moved": moved_in_sides(request.query_params, question),
        "answer": answer,
        "measured_device": measured_device,
        "validation": link(request, "/simulator/validation"),
    }
    return render(request, "pages/simulator.html", context)


@router.get("/fragments/simulator")
async def simulator_fragment(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """The answer alone."""
    question = read_simulator_question(request.query_params)
    answer = await _simulated(request, question, simulations)
    return render(request, "fragments/simulator.html", {"answer": answer})


@router.get("/fragments/explain")
async def explain_fragment(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """Every number of the scenario with its formula, and what moves it most."""
    question = read_simulator_question(request.query_params)

    def opened() -> list[ExplainView]:
        return [explain_view(letter, side) for letter, side in question.sides]

    context: dict[str, object] = {"views": [], "refusal": None}
    try:
        async with simulations.slot():
            context["views"] = await anyio.to_thread.run_sync(opened)
    except EngineError as error:
        context["refusal"] = refusal_words(error, texts(language_of(request)))
    return render(request, "fragments/explain.html", context)


@router.get("/simulator/scenario.json")
async def scenario_json(request: Request, simulations: SimulationsDep) -> Response:
    """The document that the API gives for the page's scenario."""
    side = read_simulator_question(request.query_params).a
    return JsonResponse(await simulations.document(scenario_of(side)))


@router.get("/simulator/scenario.csv")
async def scenario_as_csv(request: Request, simulations: SimulationsDep) -> Response:
    """Every number of the page's scenario as a line."""
    side = read_simulator_question(request.query_params).a
    async with simulations.slot():
        text = await anyio.to_thread.run_sync(scenario_csv, side)
    return Response(text, media_type="text/csv; charset=utf-8")


@router.get("/serving")
async def serving(request: Request, computer: ComputerDep) -> HTMLResponse:
    """A service under load: one run, its requests and its levels over time."""
    return await _serving(request, read_serving_question(request.query_params), computer)


@router.post("/serving")
async def serving_of_trace(request: Request, computer: ComputerDep) -> HTMLResponse:
    """The page with a posted trace."""
    return await _serving(request, read_trace_question(await _posted(request)), computer)


@router.get("/fragments/serving")
async def serving_fragment(request: Request, computer: ComputerDep) -> HTMLResponse:
    """The run alone."""
    answer = await _served(request, read_serving_question(request.query_params), computer)
    return render(request, "fragments/serving.html", {"answer": answer})


@router.post("/fragments/serving")
async def serving_of_trace_fragment(request: Request, computer: ComputerDep) -> HTMLResponse:
    """The run of a posted trace alone."""
    answer = await _served(request, read_trace_question(await _posted(request)), computer)
    return render(request, "fragments/serving.html", {"answer": answer})


@router.get("/serving/run.json")
async def serving_json(request: Request, computer: ComputerDep) -> Response:
    """The document that the API gives for the page's run."""
    made = await _exported(request, computer, "json")
    return Response(made, media_type="application/json")


@router.get("/serving/requests.csv")
async def serving_csv(request: Request, computer: ComputerDep) -> Response:
    """Every answered request of the page's run as a line."""
    made = await _exported(request, computer, "csv")
    return Response(made, media_type="text/csv; charset=utf-8")


@router.get("/fragments/knee")
async def knee_fragment(request: Request, computer: ComputerDep) -> HTMLResponse:
    """Latency over throughput, of eight runs."""
    question = read_serving_question(request.query_params)
    try:
        runs = await _runs(knee_questions(question), computer)
        knee = draw_knee(runs, texts(language_of(request)))
    except EngineError as error:
        knee = KneeAnswer(refusal=refusal_words(error, texts(language_of(request))))
    return render(request, "fragments/knee.html", {"knee": knee})


async def _simulated(
    request: Request, question: SimulatorQuestion, simulations: SimulationRunner
) -> SimulatorAnswer:
    said = texts(language_of(request))
    try:
        async with simulations.slot():
            return await anyio.to_thread.run_sync(simulator_answer, question, said)
    except QueueFull as error:
        return SimulatorAnswer(question, refusal=refusal_words(error, said))


async def _posted(request: Request) -> dict[str, str]:
    """The fields of a posted form.

    Raises:
        Problem: the body is no form (415), or holds what is no text (422).
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise Problem(415, "unsupported_media_type", f"Send the form as {_FORM}.")
    try:
        pairs = parse_qsl(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS,
            errors="strict",
        )  # fmt: skip
    except ValueError:
        raise Problem(422, "invalid_form", "The form cannot be read as UTF-8 text.") from None
    return dict(pairs)


async def _serving(request: Request, question: ServingQuestion, computer: Computer) -> HTMLResponse:
    context: dict[str, object] = {
        "room": "serving",
        "form": serving_form(question),
        "moved": moved_knobs(request.query_params, ServingQuestion.NUMBERS, question),
        "answer": await _served(request, question, computer),
        "measured_device": measured_device,
        "most_bytes": request.app.state.settings.max_body_bytes,
    }
    return render(request, "pages/serving.html", context)


async def _served(request: Request, question: ServingQuestion, computer: Computer) -> ServingAnswer:
    try:
        # A trace may have ten thousand lines: too many to read on the event loop.
        if question.trace:
            await anyio.to_thread.run_sync(question.scenario)
        (run,) = await _runs([question], computer)
        return draw_serving(question, run, texts(language_of(request)))
    except EngineError as error:
        return ServingAnswer(question, refusal=refusal_words(error, texts(language_of(request))))


async def _runs(questions: Sequence[ServingQuestion], computer: Computer) -> tuple[ServedRun, ...]:
    """The runs; long ones beside this process, or they would hold up every stream of tokens."""
    effort = sum(question.scenario().effort for question in questions)
    asked = Question("serving-page", body_of(questions))
    made = await computer.answer(asked, long=effort > SHORT_EFFORT_S)
    return read_runs(made, questions)


async def _exported(request: Request, computer: Computer, form: Form) -> bytes:
    question = read_serving_question(request.query_params)
    asked = Question("serving-export", asdict(question), form)
    return await computer.answer(asked, long=question.scenario().effort > SHORT_EFFORT_S)


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
