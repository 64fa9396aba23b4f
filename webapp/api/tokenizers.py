"""``/api/v1/tokenizers``: vocabularies of several models on the same text, and one's own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from webapp.api.strict_route import StrictJsonRoute
from webapp.dependencies import GoneDep, TokenizingDep
from webapp.problems import JsonResponse
from webapp.schemas.problem import problem_responses
from webapp.schemas.tokenizers import (
    ComparedDocument,
    EncodedDocument,
    EncodeRequest,
    LanguagesDocument,
    TokenizersDocument,
    TrainingDocument,
    TrainRequest,
    WordMergesDocument,
    WordMergesRequest,
)
from webapp.tokenizing import listed

router = APIRouter(prefix="/tokenizers", tags=["tokenizers"], route_class=StrictJsonRoute)

Id = Annotated[str, Path(pattern=r"^[a-z0-9]{1,32}$")]
Article = Annotated[int, Query(ge=0, le=30, description="1 to 30; 0 counts all of them.")]
_PROBLEMS = problem_responses(400, 403, 408, 413, 415, 422, 503)


@router.get("", response_model=TokenizersDocument)
async def list_tokenizers() -> Response:
    """Vocabularies that are stored here, with where they are from."""
    return JsonResponse(listed())


@router.get("/languages", response_model=LanguagesDocument, responses=problem_responses(422, 503))
async def count_languages(
    tokenizing: TokenizingDep, gone: GoneDep, article: Article = 1
) -> Response:
    """The same article in many languages: how many tokens each vocabulary makes of it."""
    return JsonResponse(await tokenizing.languages(article, gone))


@router.post("/compare", response_model=ComparedDocument, responses=_PROBLEMS)
async def compare_tokenizers(
    question: EncodeRequest, tokenizing: TokenizingDep, gone: GoneDep
) -> Response:
    """How many tokens each vocabulary makes of a text."""
    return JsonResponse(await tokenizing.compare(question.text, gone))


@router.post("/train", response_model=TrainingDocument, responses=_PROBLEMS)
async def train_tokenizer(
    question: TrainRequest, tokenizing: TokenizingDep, gone: GoneDep
) -> Response:
    """Learns merges from a text, from characters on, the most frequent pair first."""
    return JsonResponse(await tokenizing.train(question.text, question.merges, gone))


@router.post("/{tokenizer}/encode", response_model=EncodedDocument, responses=_PROBLEMS)
async def encode_with(
    tokenizer: Id, question: EncodeRequest, tokenizing: TokenizingDep, gone: GoneDep
) -> Response:
    """The tokens of a text by one vocabulary."""
    return JsonResponse(await tokenizing.encode(tokenizer, question.text, gone))


@router.post("/{tokenizer}/merges", response_model=WordMergesDocument, responses=_PROBLEMS)
async def merge_with(
    tokenizer: Id, question: WordMergesRequest, tokenizing: TokenizingDep, gone: GoneDep
) -> Response:
    """How one vocabulary makes tokens of each word, merge by merge."""
    return JsonResponse(await tokenizing.merges(tokenizer, question.text, gone))
