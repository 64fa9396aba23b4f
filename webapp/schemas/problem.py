"""The problem document as a schema, for the description of the API."""

from __future__ import annotations

from pydantic import Field

from webapp.problems import MEDIA_TYPE
from webapp.schemas.base import OutputModel


class FieldErrorDocument(OutputModel):
    pointer: str = Field(description="JSON pointer into the body, or query:name, path:name.")
    code: str
    detail: str = Field(description="What to send instead.")


class ProblemDocument(OutputModel):
    """RFC 9457. Never repeats what was sent; at most 4 KiB."""

    type: str
    title: str
    status: int
    code: str = Field(description="Stable, machine-readable name of the kind of problem.")
    detail: str
    errors: list[FieldErrorDocument] | None = None
    more_errors: int | None = None
    reason: str | None = Field(
        default=None, description="Of a refusal by the engine: the name of its sentence."
    )
    values: dict[str, int | str] | None = Field(
        default=None, description="What the sentence has blanks for."
    )


def problem_responses(*statuses: int) -> dict[int | str, dict[str, object]]:
    """For ``responses=`` of a route: these statuses answer with a problem document."""
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {"description": "Problem", "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }
