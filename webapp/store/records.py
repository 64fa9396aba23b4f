"""What goes into the store and comes out of it. Free of SQLAlchemy, which is slow to import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """A run that was saved. Times are Unix seconds; the token is kept nowhere else."""

    id: str
    created: int
    expires: int
    delete_token: str


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as it was saved: ``document`` is its JSON. One that comes with the program does not
    expire."""

    id: str
    created: int
    expires: int | None
    document: bytes


class StoreUnavailable(Exception):
    """The database cannot be opened."""


class StoreFull(Exception):
    """All saved runs together would take more than may be kept."""


class WrongToken(Exception):
    """The token does not belong to this run."""
