"""The solution of a small case of lesson 12."""

from __future__ import annotations

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from engine.errors import EngineError
from webapp.dependencies import SimulationsDep
from webapp.i18n import texts
from webapp.pages.cases import solution_view
from webapp.pages.query import Knobs
from webapp.rendering import language_of, render

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/fragments/case")
async def case(request: Request, simulations: SimulationsDep) -> HTMLResponse:
    """What the reader answered, beside what is true."""
    knobs = Knobs(request.query_params)
    asked = (knobs.text("case", ""), knobs.text("phase", ""), knobs.text("cause", ""))
    context: dict[str, object] = {"found": None, "refusal": ""}
    said = texts(language_of(request))
    try:
        async with simulations.slot():
            context["found"] = await anyio.to_thread.run_sync(solution_view, *asked, said)
    except EngineError as error:
        context["refusal"] = said.gettext(error.message)
    return render(request, "fragments/case_solution.html", context)
