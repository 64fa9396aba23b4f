"""``/api/v1/words``: neighbours and maps of word vectors."""

from __future__ import annotations

from dataclasses import asdict

import anyio.to_thread
from fastapi import APIRouter

from engine.catalog.words import word_vectors
from webapp.api.strict_route import StrictJsonRoute
from webapp.schemas.problem import problem_responses
from webapp.schemas.words import (
    MapRequest,
    NearDocument,
    NearRequest,
    NearWordDocument,
    WordMapDocument,
)

router = APIRouter(tags=["words"], route_class=StrictJsonRoute)

SOURCE = "GloVe 6B, 50 dimensions (Pennington, Socher, Manning 2014), PDDL 1.0"
_REFUSALS = problem_responses(400, 403, 408, 413, 415, 422)


@router.post("/words/near", response_model=NearDocument, responses=_REFUSALS)
async def near_words(question: NearRequest) -> NearDocument:
    """The words nearest to a word, or to a sum such as king − man + woman."""
    return await anyio.to_thread.run_sync(_near, question)


@router.post("/words/map", response_model=WordMapDocument, responses=_REFUSALS)
async def map_words(question: MapRequest) -> WordMapDocument:
    """Some words on a plane, along the two directions in which they differ most."""
    found = await anyio.to_thread.run_sync(lambda: word_vectors().map(question.words))
    return WordMapDocument.model_validate({**asdict(found), "source": SOURCE})


def _near(question: NearRequest) -> NearDocument:
    vectors = word_vectors()
    near = vectors.near(question.plus, question.minus, question.k)
    return NearDocument(
        near=[NearWordDocument(word=item.word, cosine=item.cosine) for item in near],
        dimensions=vectors.dimensions,
        source=SOURCE,
    )
