"""``GET /api/v1/openapi.json``: the API described for programs.

The stock description is not used as it is: its 422 answers are not the ones that are sent.
"""

from __future__ import annotations

from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from webapp.openai.errors import PREFIX
from webapp.problems import MEDIA_TYPE, JsonResponse
from webapp.schemas.problem import ProblemDocument
from webapp.schemas.saved_run import SavedRun

router = APIRouter(include_in_schema=False)

_EXTRA_MODELS = (ProblemDocument, SavedRun)
"""What routes refer to without the framework's knowing it."""
_STOCK_SCHEMAS = ("HTTPValidationError", "ValidationError")
_REF = "#/components/schemas/{model}"


@router.get("/openapi.json")
def openapi(request: Request) -> Response:
    """The description, with the path under which the app is served as its server."""
    return JsonResponse(describe(request.app), headers={"cache-control": "no-cache"})


def describe(app: FastAPI) -> dict[str, Any]:
    """An OpenAPI 3.1 document of everything that ``app`` shows to programs."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary="A language model looked into: a real engine beside its roofline prediction.",
        routes=app.routes,
        servers=[{"url": app.state.settings.root_path or "/"}],
    )
    schemas = cast(
        "dict[str, Any]", document.setdefault("components", {}).setdefault("schemas", {})
    )
    for name in _STOCK_SCHEMAS:
        schemas.pop(name, None)
    for model in _EXTRA_MODELS:
        described = model.model_json_schema(ref_template=_REF)
        schemas.update(described.pop("$defs", {}))
        schemas[model.__name__] = described
    content = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="ProblemDocument")}}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith(PREFIX):
                operation["responses"].pop("422", None)  # 400 there, and in that shape
            elif "422" in operation["responses"]:
                operation["responses"]["422"] = {"description": "Problem", "content": content}
    return document
