"""``POST /api/v1/tokenize``, ``/detokenize``, ``/probes/{kind}``: the real engine, looked into."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response

from engine.inference.probes.text_documents import TextTokens
from webapp.api.strict_route import StrictJsonRoute
from webapp.dependencies import GoneDep, QuestionsDep
from webapp.problems import JsonResponse
from webapp.questions import Questions
from webapp.schemas.base import StrictModel
from webapp.schemas.from_documents import schema_of
from webapp.schemas.probes import PROBES, ProbeKind
from webapp.schemas.problem import problem_responses
from webapp.schemas.texts import DetokenizeRequest, TokenizeRequest
from webapp.waiting import Gone

router = APIRouter(tags=["engine"], route_class=StrictJsonRoute)

_PROBLEMS = problem_responses(400, 403, 408, 413, 415, 422, 503)


@router.post("/tokenize", response_model=schema_of(TextTokens), responses=_PROBLEMS)
async def tokenize(question: TokenizeRequest, questions: QuestionsDep, gone: GoneDep) -> Response:
    """The tokens of a text or a conversation, by the tokenizer of the model that runs here."""
    return await _answer("tokenize", question, questions, gone)


@router.post("/detokenize", response_model=schema_of(TextTokens), responses=_PROBLEMS)
async def detokenize(
    question: DetokenizeRequest, questions: QuestionsDep, gone: GoneDep
) -> Response:
    """The text of token ids, and what of it is certain after each of them."""
    return await _answer("detokenize", question, questions, gone)


async def _answer(kind: str, question: StrictModel, questions: Questions, gone: Gone) -> Response:
    # Only what was sent goes on, and null is the same as nothing.
    arguments = question.model_dump(exclude_unset=True, exclude_none=True)
    return JsonResponse(await questions.ask(kind, arguments, gone))


def _handler(name: str, kind: ProbeKind) -> Callable[..., Awaitable[Response]]:
    async def probe(question: StrictModel, questions: QuestionsDep, gone: GoneDep) -> Response:
        return await _answer(name, question, questions, gone)

    probe.__annotations__["question"] = kind.request
    return probe


for _name, _kind in PROBES.items():
    router.add_api_route(
        f"/probes/{_name}",
        _handler(_name, _kind),
        methods=["POST"],
        name=f"probe_{_name.replace('-', '_')}",
        description=_kind.description,
        response_model=_kind.answer,
        responses=_PROBLEMS,
    )
