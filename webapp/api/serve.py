"""``POST /api/v1/serve``, and the jobs that long runs become."""

from __future__ import annotations

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Path, Request, Response

from engine.simulator.serving.simulation import simulate_serving
from webapp.api.strict_route import StrictJsonRoute
from webapp.dependencies import JobsDep, SimulationsDep
from webapp.jobs import Document
from webapp.problems import JsonResponse, Problem
from webapp.schemas.problem import problem_responses
from webapp.schemas.serve import JobDocument, ServeRequest, ServingDocument
from webapp.simulations import SHORT_EFFORT_S

router = APIRouter(tags=["simulator"], route_class=StrictJsonRoute)
jobs_router = APIRouter(tags=["simulator"])

JobId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


@router.post(
    "/serve",
    response_model=ServingDocument,
    responses={
        202: {"model": JobDocument, "description": "A long run: look at its job."},
        **problem_responses(400, 403, 408, 413, 415, 422, 503),
    },
)
async def serve(
    question: ServeRequest, request: Request, simulations: SimulationsDep, jobs: JobsDep
) -> Response:
    """Simulates a service under load: latency percentiles, throughput, goodput, queues.

    A short run is answered at once; a long one becomes a job (202), whose address is in Location.
    """
    # A trace may have tens of thousands of lines: too many to read on the event loop.
    scenario = await anyio.to_thread.run_sync(question.to_scenario)
    if scenario.effort > SHORT_EFFORT_S:
        job = jobs.start(question.model_dump_json().encode(), scenario.workload.size.requests)
        place = str(request.url_for("look_at_job", job_id=job.id).path)
        return JsonResponse(job.to_document(), 202, {"location": place})

    def run() -> Document:
        return simulate_serving(scenario).to_document()

    async with simulations.slot():
        return JsonResponse(await anyio.to_thread.run_sync(run))


@jobs_router.get(
    "/jobs/{job_id}", response_model=JobDocument, responses=problem_responses(404, 422)
)
async def look_at_job(job_id: JobId, jobs: JobsDep) -> Response:
    """A job's state and progress, and its result once it is done."""
    job = jobs.get(job_id)
    if job is None:
        raise _unknown()
    return JsonResponse(job.to_document(), headers={"cache-control": "no-store"})


@jobs_router.delete(
    "/jobs/{job_id}", status_code=204, responses=problem_responses(403, 404, 408, 413, 422)
)
async def cancel_job(job_id: JobId, jobs: JobsDep) -> Response:
    """Ends a job, whatever it is doing, and forgets its result."""
    if not jobs.cancel(job_id):
        raise _unknown()
    return Response(status_code=204)


def _unknown() -> Problem:
    return Problem(404, "job_not_found", "There is no such job, or no more: ask again.")
