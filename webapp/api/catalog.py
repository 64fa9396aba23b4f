"""``GET /api/v1/models`` and ``/hardware``: the catalogue, with entity tags."""

from __future__ import annotations

import hashlib
from functools import cache

from fastapi import APIRouter, Request, Response

from engine.catalog.hardware import all_hardware, get_hardware
from engine.catalog.models import all_models, get_model
from engine.errors import UnknownName
from webapp import json_codec
from webapp.problems import Problem
from webapp.schemas.base import OutputModel
from webapp.schemas.catalog import HardwareDocument, HardwareList, ModelDocument, ModelList
from webapp.schemas.problem import problem_responses

router = APIRouter(tags=["catalogue"])

_NOT_MODIFIED: dict[int | str, dict[str, object]] = {
    304: {"description": "Not modified since the entity tag that was sent."}
}


@router.get("/models", response_model=ModelList, responses=_NOT_MODIFIED)
def list_models(request: Request) -> Response:
    """Every model of the catalogue: structure, source, and sizes computed from the structure."""
    return _tagged(request, _all_models())


@router.get(
    "/models/{model_id}",
    response_model=ModelDocument,
    responses={**_NOT_MODIFIED, **problem_responses(404)},
)
def one_model(request: Request, model_id: str) -> Response:
    """One model of the catalogue."""
    try:
        spec = get_model(model_id)
    except UnknownName as error:
        raise _not_found(error) from None
    return _tagged(request, ModelDocument.of(spec))


@router.get("/hardware", response_model=HardwareList, responses=_NOT_MODIFIED)
def list_hardware(request: Request) -> Response:
    """Every device of the catalogue; this machine first, once it was calibrated."""
    hardware = [HardwareDocument.of(spec) for spec in all_hardware()]
    return _tagged(request, HardwareList(count=len(hardware), hardware=hardware))


@router.get(
    "/hardware/{hardware_id}",
    response_model=HardwareDocument,
    responses={**_NOT_MODIFIED, **problem_responses(404)},
)
def one_hardware(request: Request, hardware_id: str) -> Response:
    """One device of the catalogue, or ``this-machine``."""
    try:
        spec = get_hardware(hardware_id)
    except UnknownName as error:
        raise _not_found(error) from None
    return _tagged(request, HardwareDocument.of(spec))


@cache
def _all_models() -> ModelList:
    models = [ModelDocument.of(spec) for spec in all_models()]
    return ModelList(count=len(models), models=models)


def _not_found(error: UnknownName) -> Problem:
    return Problem(404, error.code, error.message)


def _tagged(request: Request, document: OutputModel) -> Response:
    """The document with an entity tag, or 304 if the client has it already."""
    content = json_codec.dumps(document.model_dump()).encode()
    # Weak: the same document may travel compressed or not.
    tag = f'W/"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {"etag": tag, "cache-control": "no-cache", "vary": "Accept-Encoding"}
    if _matches(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


def _matches(if_none_match: str, tag: str) -> bool:
    candidates = [part.strip() for part in if_none_match.split(",")]
    return "*" in candidates or any(
        part.removeprefix("W/") == tag.removeprefix("W/") for part in candidates
    )
