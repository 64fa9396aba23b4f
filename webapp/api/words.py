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
    vectors = await anyio.to_thread.run_sync(word_vectors)
    near = vectors.near(question.plus, question.minus, question.k)
    return NearDocument(
        near=[NearWordDocument(word=item.word, cosine=item.cosine) for item in near],
        dimensions=vectors.dimensions,
        source=SOURCE,
    )


@router.post("/words/map", response_model=WordMapDocument, responses=_REFUSALS)
async def map_words(question: MapRequest) -> WordMapDocument:
    """Some words on a plane, along the two directions in which they differ most."""
    vectors = await anyio.to_thread.run_sync(word_vectors)
    return WordMapDocument.model_validate({**asdict(vectors.map(question.words)), "source": SOURCE})
