"""``POST /api/v1/models/import``, and what it understands."""

from __future__ import annotations

from fastapi import APIRouter, Response

from engine.catalog.importing.families import READERS, WRAPPERS
from engine.catalog.importing.imported import import_model as read_model
from engine.catalog.importing.quantization import METHODS
from engine.catalog.importing.report import import_document
from webapp.api.strict_route import StrictJsonRoute
from webapp.problems import JsonResponse
from webapp.schemas.importing import ImportDocument, ImportRequest, ImportSupport
from webapp.schemas.problem import problem_responses

router = APIRouter(tags=["catalogue"], route_class=StrictJsonRoute)


@router.get("/models/import", response_model=ImportSupport)
def import_support() -> ImportSupport:
    """The types of models and the ways of quantization that an import understands."""
    return ImportSupport(
        model_types=sorted([*READERS, *WRAPPERS]), quantization_methods=sorted(METHODS)
    )


@router.post(
    "/models/import",
    response_model=ImportDocument,
    responses=problem_responses(400, 403, 408, 413, 415, 422),
)
def import_model(request: ImportRequest) -> Response:
    """Understands a Hugging Face config.json exactly, or refuses the key that it does not."""
    return JsonResponse(import_document(read_model(request.config, request.name)))
