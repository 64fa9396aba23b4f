"""``GET /api/v1/engine``."""

from __future__ import annotations

from fastapi import APIRouter, Response

from webapp.dependencies import EngineDep, PredictorDep
from webapp.engine_document import engine_document
from webapp.problems import JsonResponse
from webapp.schemas.engine import EngineDocument

router = APIRouter(tags=["engine"])


@router.get("/engine", response_model=EngineDocument)
async def engine_state(engine: EngineDep, predictor: PredictorDep) -> Response:
    """The real engine: its state, what it runs and on what."""
    return JsonResponse(engine_document(engine, predictor).model_dump())
