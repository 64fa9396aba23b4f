"""The claims over REST."""

from __future__ import annotations

from typing import Literal

from webapp.schemas.base import OutputModel


class ClaimDocument(OutputModel):
    """A statement of the article, in our words. ``effort``: ``engine`` runs the real model."""

    id: str
    says: str
    lesson: str
    effort: Literal["instant", "engine"]


class ClaimsDocument(OutputModel):
    """All of them."""

    claims: list[ClaimDocument]


class EvidenceDocument(OutputModel):
    """One number that was found, as text with its unit."""

    name: str
    value: str
    basis: Literal["measured", "predicted", "published", "computed"]
    source: str


class FindingDocument(OutputModel):
    """What checking a claim now has found."""

    claim: ClaimDocument
    verdict: Literal["right", "caveat", "wrong"]
    sentence: str
    caveat: str
    evidence: list[EvidenceDocument]
