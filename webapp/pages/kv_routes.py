"""Fragments of the lessons on the KV cache and on serving: forms, and the answers to them."""

from __future__ import annotations

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from engine.errors import EngineError
from webapp.dependencies import SimulationsDep
from webapp.i18n import texts
from webapp.pages.elsewhere import hardware_by_category, measured_device
from webapp.pages.kv_view import (
    KV_FORMATS,
    LEAST,
    MOST,
    MOST_TOGETHER,
    kv_view,
    model_names,
    read_kv_question,
)
from webapp.pages.pool_run import CHUNKS, LEAST_BLOCKS, MOST_BLOCKS, read_pool_question
from webapp.pages.pool_view import PoolView, pool_view
from webapp.rendering import language_of, render
from webapp.simulations import SimulationRunner

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/fragments/kv-bytes")
async def kv_bytes(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """The form with its answer below."""
    context = await _answered(request, simulations) | {
        "models": model_names(),
        "devices": hardware_by_category(),
        "measured_device": measured_device,
        "formats": KV_FORMATS,
        "contexts": (LEAST, MOST),
        "most_together": MOST_TOGETHER,
    }
    return render(request, "fragments/kv_bytes.html", context)


@router.get("/fragments/kv-answer")
async def kv_answer(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """The answer alone."""
    return render(request, "fragments/kv_answer.html", await _answered(request, simulations))


@router.get("/fragments/pool")
async def pool(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """A small cache and its people: the form, with the run below."""
    context = {
        "pool": await _pooled(request, simulations),
        "blocks": (LEAST_BLOCKS, MOST_BLOCKS),
        "chunks": CHUNKS,
    }
    return render(request, "fragments/pool.html", context)


@router.get("/fragments/pool-answer")
async def pool_answer(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """The run alone."""
    context = {"pool": await _pooled(request, simulations)}
    return render(request, "fragments/pool_answer.html", context)


async def _pooled(request: Request, simulations: SimulationRunner) -> PoolView:
    question, said = read_pool_question(request.query_params), texts(language_of(request))
    async with simulations.slot():
        return await anyio.to_thread.run_sync(pool_view, question, said)


async def _answered(request: Request, simulations: SimulationRunner) -> dict[str, object]:
    question, said = read_kv_question(request.query_params), texts(language_of(request))
    found: dict[str, object] = {"asked": question, "kv": None, "refusal": None}
    try:
        async with simulations.slot():
            found["kv"] = await anyio.to_thread.run_sync(kv_view, question, said)
    except EngineError as error:
        found["refusal"] = said.gettext(error.message)
    return found
