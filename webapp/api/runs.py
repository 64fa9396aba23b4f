"""``/api/v1/runs``: runs saved, read, exported and deleted."""

from __future__ import annotations

from typing import Annotated, cast

import anyio.to_thread
from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import ValidationError

from webapp import json_codec, run_export
from webapp.api.strict_route import check_media_type, read_json
from webapp.dependencies import RunsDep
from webapp.live.addresses import client_network
from webapp.problems import JsonResponse, Problem
from webapp.rendering import link
from webapp.run_export import Form
from webapp.schemas.explain import explain_errors
from webapp.schemas.problem import problem_responses
from webapp.schemas.run_documents import RunDocument, RunReceipt
from webapp.schemas.saved_run import EVENT_TAGS, SavedRun
from webapp.store.records import StoreFull, WrongToken
from webapp.store.saved_runs import iso, read_stored

router = APIRouter(tags=["runs"])

BODY_PATHS = ("/api/v1/runs", "/api/v1/export")
"""Paths that take a whole run in the body."""

RunId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,32}$")]
DeleteToken = Annotated[
    str, Header(alias="x-delete-token", pattern=r"^[A-Za-z0-9_-]{43}$", description="From saving.")
]
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/SavedRun"}}},
    }
}
_EXPORTED: dict[int | str, dict[str, object]] = {
    200: {
        "description": "The run in that form.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}


@router.post(
    "/runs",
    status_code=201,
    response_model=RunReceipt,
    responses=problem_responses(400, 403, 408, 413, 415, 422, 429, 503, 507),
    openapi_extra=_BODY,
)
async def save_run(request: Request, runs: RunsDep) -> Response:
    """Keeps a run for a time, under an address that cannot be guessed."""
    if not runs.rate.take(client_network(request.client.host if request.client else None)):
        raise Problem(
            429,
            "too_many_runs",
            "This address has saved many runs; try again in some minutes.",
            headers={"retry-after": "60"},
        )
    run = await _read_run(request)
    document = await anyio.to_thread.run_sync(_write, run)
    try:
        receipt = await runs.save(document)
    except StoreFull:
        raise Problem(507, "store_full", "There is no room for more saved runs here.") from None
    told = RunReceipt(
        id=receipt.id,
        path=link(request, f"/runs/{receipt.id}"),
        created=iso(receipt.created),
        expires=iso(receipt.expires),
        delete_token=receipt.delete_token,
    )
    return JsonResponse(told.model_dump(), 201, {"location": f"{request.url.path}/{receipt.id}"})


@router.post(
    "/export",
    response_class=Response,
    responses={**_EXPORTED, **problem_responses(400, 403, 408, 413, 415, 422)},
    openapi_extra=_BODY,
)
async def export_unsaved_run(request: Request, format: Form) -> Response:
    """A run in a form for other programs, without saving it."""
    return await _exported(await _read_run(request), format)


@router.get(
    "/runs/{run_id}", response_model=RunDocument, responses=problem_responses(404, 422, 503)
)
async def read_run(run_id: RunId, runs: RunsDep) -> Response:
    """A saved run with all its events. ``example`` comes with the program."""
    found = await runs.get(run_id)
    if found is None:
        raise _unknown()
    run = await anyio.to_thread.run_sync(json_codec.loads, found.document)
    expires = None if found.expires is None else iso(found.expires)
    told = RunDocument(
        id=run_id, created=iso(found.created), expires=expires, run=cast("dict[str, object]", run)
    )
    return JsonResponse(told.model_dump())


@router.get(
    "/runs/{run_id}/export",
    response_class=Response,
    responses={**_EXPORTED, **problem_responses(404, 422, 503)},
)
async def export_run(run_id: RunId, format: Form, runs: RunsDep) -> Response:
    """A saved run in a form for other programs: its document, CSV of its steps or its tokens, or
    a trace for Perfetto and chrome://tracing."""
    found = await runs.get(run_id)
    run = None if found is None else await anyio.to_thread.run_sync(read_stored, found)
    if run is None:
        raise _unknown()
    return await _exported(run, format)


@router.delete(
    "/runs/{run_id}",
    status_code=204,
    responses=problem_responses(403, 404, 408, 413, 422, 503),
)
async def delete_run(run_id: RunId, delete_token: DeleteToken, runs: RunsDep) -> Response:
    """Deletes a run, for whoever saved it."""
    try:
        found = await runs.delete(run_id, delete_token)
    except WrongToken:
        raise Problem(403, "wrong_delete_token", "This token is not the run's.") from None
    if not found:
        raise _unknown()
    return Response(status_code=204)


async def _read_run(request: Request) -> SavedRun:
    """The run in the body, checked beside the event loop: it may have megabytes."""
    check_media_type(request)
    body = await request.body()
    return await anyio.to_thread.run_sync(lambda: _check_run(read_json(body)))


def _check_run(document: object) -> SavedRun:
    """A document as a run; raises ``Problem`` 422 naming the field for one that is none."""
    try:
        # Strict at every depth: the events' own models would convert.
        return SavedRun.model_validate(document, strict=True)
    except ValidationError as error:
        details = error.errors(include_input=False, include_url=False)
        errors = explain_errors([{**detail, "loc": _place(detail["loc"])} for detail in details])
        raise Problem(
            422, "validation_failed", "The body is not a run as the pages save it.", errors
        ) from None


def _place(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The place in what was sent, which has no tags of a union in it."""
    tagged = len(location) > 2 and location[0] == "events" and location[2] in EVENT_TAGS
    return (*location[:2], *location[3:]) if tagged else location


def _write(run: SavedRun) -> bytes:
    return json_codec.dumps(run.model_dump()).encode()


async def _exported(run: SavedRun, form: Form) -> Response:
    content = await anyio.to_thread.run_sync(run_export.export, run, form)
    name, media_type = run_export.FILES[form]
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)


def _unknown() -> Problem:
    return Problem(404, "run_not_found", "There is no such run, or no more.")
