"""Whether the process is up, and whether a prompt would be answered."""

from __future__ import annotations

from typing import Literal

from webapp.schemas.base import OutputModel


class HealthDocument(OutputModel):
    status: Literal["up"]


class ReadyDocument(OutputModel):
    """``state`` is the engine's; ``reason`` says what is missing, empty when ready."""

    status: Literal["ready", "not_ready"]
    state: str
    reason: str
