"""What ``/api/v1/runs`` answers."""

from __future__ import annotations

from pydantic import Field

from webapp.schemas.base import OutputModel


class RunReceipt(OutputModel):
    """A run that was just saved. The delete token is told only here."""

    id: str
    path: str = Field(description="The page that shows it, under this server's address.")
    created: str = Field(description="ISO 8601, UTC.")
    expires: str = Field(description="ISO 8601, UTC. The run is deleted then.")
    delete_token: str = Field(description="Deletes the run: send it as X-Delete-Token.")


class RunDocument(OutputModel):
    """A saved run. What is in ``run`` was reported by a browser and checked for its form only."""

    id: str
    created: str = Field(description="ISO 8601, UTC.")
    expires: str | None = Field(description="ISO 8601, UTC; null: comes with the program.")
    run: dict[str, object] = Field(description="The document as it was saved: see SavedRun.")
