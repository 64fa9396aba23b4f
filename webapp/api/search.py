"""``POST /api/v1/estimate``, ``/sweep``, ``/search`` and ``/diagnose``."""

from __future__ import annotations

import anyio.to_thread
from fastapi import APIRouter, Request, Response

from engine.simulator.quantity import Document
from engine.simulator.search.document import estimate_document, read_cell
from engine.simulator.search.search_document import read_requirement
from webapp.answers import Form, Question
from webapp.api.strict_route import StrictJsonRoute
from webapp.dependencies import ComputerDep
from webapp.problems import JsonResponse
from webapp.schemas.cheapest import SearchDocument, SearchRequest
from webapp.schemas.diagnose import DiagnoseRequest, DiagnosisDocument
from webapp.schemas.problem import problem_responses
from webapp.schemas.search import (
    SHORT_CELLS,
    EstimateDocument,
    SweepCell,
    SweepDocument,
    SweepRequest,
)

router = APIRouter(tags=["simulator"], route_class=StrictJsonRoute)

_MEDIA_TYPES: dict[Form, str] = {"json": "application/json", "csv": "text/csv; charset=utf-8"}
_CSV: dict[int | str, dict[str, object]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}}
}


@router.post(
    "/estimate",
    response_model=EstimateDocument,
    responses=problem_responses(400, 403, 408, 413, 415, 422),
)
async def estimate(question: SweepCell) -> Response:
    """Predicts one run in a few numbers, as fast as can be; ``/simulate`` explains every one."""

    def run() -> Document:
        return estimate_document(read_cell(question.model_dump()))

    # Half a millisecond, whatever is asked of the catalogue: less than handing it to a thread
    # would take. What is described in place may be long.
    in_catalogue = isinstance(question.model, str) and isinstance(question.hardware, str)
    return JsonResponse(run() if in_catalogue else await anyio.to_thread.run_sync(run))


@router.post(
    "/sweep",
    response_model=SweepDocument,
    responses={**_CSV, **problem_responses(400, 403, 408, 413, 415, 422, 503)},
)
async def sweep(
    question: SweepRequest, request: Request, computer: ComputerDep, format: Form | None = None
) -> Response:
    """Predicts all combinations of some knobs' values; as CSV with ``Accept: text/csv`` or
    ``?format=csv``."""
    form = format or ("csv" if "text/csv" in request.headers.get("accept", "") else "json")
    asked = Question("sweep", question.model_dump(), form, _takes_gzip(request))
    return respond(asked, await computer.answer(asked, long=question.cells > SHORT_CELLS))


@router.post(
    "/search",
    response_model=SearchDocument,
    responses=problem_responses(400, 403, 408, 413, 415, 422, 503),
)
async def search(question: SearchRequest, request: Request, computer: ComputerDep) -> Response:
    """Finds the cheapest deployments that answer a load within limits, and says why others
    fail."""
    body = question.model_dump()
    read_requirement({name: body[name] for name in body if name != "finalists"}).check_names()
    asked = Question("search", body, compressed=_takes_gzip(request))
    return respond(asked, await computer.answer(asked, long=True))


@router.post(
    "/diagnose",
    response_model=DiagnosisDocument,
    responses=problem_responses(400, 403, 408, 413, 415, 422, 503),
)
async def diagnose(question: DiagnoseRequest, request: Request, computer: ComputerDep) -> Response:
    """Says from measured times whether an answer is slow to start or slow to stream, why, and
    what would help by how much."""
    asked = Question("diagnose", question.model_dump(), compressed=_takes_gzip(request))
    return respond(asked, await computer.answer(asked, long=len(question.observations) > 1))


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def respond(question: Question, content: bytes) -> Response:
    """The answer as it was made; what is compressed already is not compressed again."""
    headers = {"vary": "Accept, Accept-Encoding"}
    if question.compressed:
        headers["content-encoding"] = "gzip"
    return Response(content, media_type=_MEDIA_TYPES[question.form], headers=headers)
