"""Fragments of lesson 7, the two phases."""

from __future__ import annotations

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from webapp.dependencies import EngineDep, PredictorDep, SimulationsDep
from webapp.i18n import texts
from webapp.pages.phases_view import lengths_view, read_lengths, read_points, sweep_view
from webapp.rendering import language_of, render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)
Measured = Annotated[list[str] | None, Query()]


@router.get("/fragments/phases/lengths")
async def lengths(
    request: Request, engine: EngineDep, predictor: PredictorDep, simulations: SimulationsDep
) -> HTMLResponse:
    """What a prompt and an answer of some length take."""
    question = read_lengths(request.query_params)
    said = texts(language_of(request))
    async with simulations.slot():
        view = await anyio.to_thread.run_sync(lengths_view, question, engine.info, predictor, said)
    return render(request, "fragments/phases_lengths.html", {"view": view})


@router.get("/fragments/phases/sweep")
async def sweep(
    request: Request,
    engine: EngineDep,
    predictor: PredictorDep,
    simulations: SimulationsDep,
    ttft: Measured = None,
    itl: Measured = None,
) -> HTMLResponse:
    """Measured times over their lengths, on the predicted lines."""
    said = texts(language_of(request))
    points = read_points(ttft or []), read_points(itl or [])
    async with simulations.slot():
        view = await anyio.to_thread.run_sync(sweep_view, *points, engine.info, predictor, said)
    return render(request, "fragments/phases_sweep.html", {"view": view})
