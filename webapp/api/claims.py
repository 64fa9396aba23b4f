"""``/api/v1/claims``: the article's statements, and a check of each."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request

from webapp.claims.catalogue import CHECKS, CLAIMS, get_claim
from webapp.claims.claim import Claim
from webapp.dependencies import BenchDep, ClaimsDep, GoneDep
from webapp.i18n import Texts, texts
from webapp.problems import Problem
from webapp.rendering import language_of
from webapp.schemas.claims import (
    ClaimDocument,
    ClaimsDocument,
    EvidenceDocument,
    FindingDocument,
)
from webapp.schemas.problem import problem_responses

router = APIRouter(tags=["claims"])


@router.get("/claims", response_model=ClaimsDocument)
async def list_claims(request: Request) -> ClaimsDocument:
    """The statements of the article, in the language of the request."""
    said = texts(language_of(request))
    return ClaimsDocument(claims=[_document(claim, said) for claim in CLAIMS])


@router.post(
    "/claims/{claim_id}",
    response_model=FindingDocument,
    responses=problem_responses(403, 404, 422, 500, 503),
)
async def check_claim(
    claim_id: str, runner: ClaimsDep, bench: BenchDep, gone: GoneDep
) -> FindingDocument:
    """Measures or computes a claim now. Those of effort ``engine`` take their turn, and seconds."""
    claim = get_claim(claim_id)
    if claim is None or claim.id not in CHECKS:
        raise Problem(404, "unknown_claim", "No claim has this id; GET /api/v1/claims lists them.")
    finding = await runner.find(claim, bench, gone)
    return FindingDocument(
        claim=_document(claim, bench.said),
        verdict=finding.verdict.value,
        sentence=finding.sentence,
        caveat=finding.caveat,
        evidence=[EvidenceDocument.model_validate(asdict(item)) for item in finding.evidence],
    )


def _document(claim: Claim, said: Texts) -> ClaimDocument:
    return ClaimDocument(
        id=claim.id, says=said.gettext(claim.says), lesson=claim.lesson, effort=claim.effort.value
    )
