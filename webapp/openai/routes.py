"""``/v1/models``, ``/v1/completions``, ``/v1/chat/completions``; see ``webapp/openai/API.md``."""

from __future__ import annotations

import time
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ValidationError

from engine.inference.messages import EngineInfo
from webapp.api.strict_route import StrictJsonRoute
from webapp.dependencies import EngineDep, SettingsDep
from webapp.live.engine_port import EnginePort
from webapp.live.hub import LiveHub
from webapp.openai.answering import EVENT_STREAM, Asked, EngineAnswer
from webapp.openai.forms import ChatForm, CompletionForm, Form, Head
from webapp.openai.models import served, weights_of
from webapp.problems import JsonResponse, Problem
from webapp.schemas.explain import explain_errors
from webapp.schemas.openai_answers import (
    ChatAnswer,
    CompletionAnswer,
    ModelCard,
    ModelCards,
    error_responses,
)
from webapp.schemas.openai_requests import ChatRequest, CompletionRequest

router = APIRouter(prefix="/v1", tags=["openai"], route_class=StrictJsonRoute)

_ERRORS = error_responses(400, 403, 404, 408, 413, 415, 429, 503)
_STARTED = int(time.time())


def _streamed(answer: type[ChatAnswer | CompletionAnswer]) -> dict[int | str, dict[str, object]]:
    described = {"schema": {"type": "string"}}
    return {200: {"model": answer, "content": {EVENT_STREAM: described}}}


def get_hub(request: Request) -> LiveHub:
    """What counts all who generate."""
    return cast(LiveHub, request.app.state.live)


HubDep = Annotated[LiveHub, Depends(get_hub)]


@router.get("/models", response_model=ModelCards, responses=error_responses(503))
async def openai_models(engine: EngineDep) -> Response:
    """What runs here, under the names that the other calls take."""
    return JsonResponse(ModelCards(data=served(_info(engine), _STARTED)).model_dump())


@router.get("/models/{model}", response_model=ModelCard, responses=error_responses(404, 503))
async def openai_model(model: str, engine: EngineDep) -> Response:
    """One of them."""
    info = _info(engine)
    weights_of(model, info)
    card = ModelCard(id=model, created=_STARTED, owned_by="firsttoken")
    return JsonResponse(card.model_dump())


@router.post(
    "/completions",
    response_model=CompletionAnswer,
    responses={**_streamed(CompletionAnswer), **_ERRORS},
)
async def openai_completion(
    question: CompletionRequest, engine: EngineDep, hub: HubDep, settings: SettingsDep
) -> Response:
    """Continues a text. ``timings`` compare the measured with the roofline's prediction."""
    form = CompletionForm(question.logprobs)
    return EngineAnswer(hub, _asked(question, form, engine), settings.live_stuck_s)


@router.post(
    "/chat/completions", response_model=ChatAnswer, responses={**_streamed(ChatAnswer), **_ERRORS}
)
async def openai_chat(
    question: ChatRequest, engine: EngineDep, hub: HubDep, settings: SettingsDep
) -> Response:
    """Answers a conversation. ``timings`` compare the measured with the roofline's prediction."""
    form = ChatForm(question.wants_logprobs)
    return EngineAnswer(hub, _asked(question, form, engine), settings.live_stuck_s)


def _asked(question: CompletionRequest | ChatRequest, form: Form, engine: EnginePort) -> Asked:
    """Raises ``Problem`` for a model that is not served and for values that do not go together."""
    weights = weights_of(question.model, _info(engine))
    try:
        message = question.to_generate(weights)
    except ValidationError as error:
        errors = explain_errors(error.errors(include_input=False, include_url=False))
        raise Problem(422, "validation_failed", errors[0].detail, errors) from None
    return Asked(
        message=message,
        form=form,
        head=Head(question.model),
        streamed=question.stream is True,
        include_usage=question.include_usage,
        every_token=question.wants_logprobs,
    )


def _info(engine: EnginePort) -> EngineInfo:
    if engine.info is None:
        detail = f"The engine is not ready: {engine.reason or engine.state}."
        raise Problem(503, "engine_unavailable", detail, headers={"retry-after": "1"})
    return engine.info
