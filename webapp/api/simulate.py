"""``POST /api/v1/simulate``."""

from __future__ import annotations

from fastapi import APIRouter, Response

from webapp.api.strict_route import StrictJsonRoute
from webapp.dependencies import SimulationsDep
from webapp.problems import JsonResponse
from webapp.schemas.problem import problem_responses
from webapp.schemas.simulate import SimulateRequest, SimulationDocument

router = APIRouter(tags=["simulator"], route_class=StrictJsonRoute)


@router.post(
    "/simulate",
    response_model=SimulationDocument,
    responses=problem_responses(400, 403, 408, 413, 415, 422, 503),
)
async def simulate(question: SimulateRequest, simulations: SimulationsDep) -> Response:
    """Predicts TTFT, ITL, throughput and memory of a model on a device, with every formula."""
    return JsonResponse(await simulations.document(question.to_scenario()))
